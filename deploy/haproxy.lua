-- For haproxy.cfg beside this file: asks a node of Jatah whether a request may pass. HAProxy 2.6 or later, with Lua as Debian builds it.

-- Where haproxy.cfg has its frontend for questions.
local url = "http://127.0.0.1:8079/v1/forward-auth"

-- true: requests pass while no node can decide; false: they are refused with 503.
local open = false

-- What a client is told of an answer.
local told = {
	"content-type", "cache-control", "retry-after", "ratelimit", "ratelimit-policy",
	"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset",
}

-- What the client sends and is not passed on: what we say ourselves, and what is about the connection or the body.
local ours = {
	["x-forwarded-method"] = true, ["x-forwarded-uri"] = true, ["x-forwarded-host"] = true, ["x-forwarded-for"] = true,
	["x-original-method"] = true, ["x-original-uri"] = true, ["x-original-url"] = true,
	-- Who is logged in: account_header on the nodes. If HAProxy has checked it, set it below.
	["x-user"] = true,
	["host"] = true, ["connection"] = true, ["keep-alive"] = true, ["upgrade"] = true, ["te"] = true, ["trailer"] = true,
	["transfer-encoding"] = true, ["content-length"] = true, ["expect"] = true,
}

core.register_action("jatah", { "http-req" }, function(txn)
	local ask = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if not ours[name] then
			ask[name] = {}
			for _, value in pairs(values) do
				table.insert(ask[name], value)
			end
		end
	end
	ask["x-forwarded-method"] = { txn.f:method() }
	ask["x-forwarded-uri"] = { txn.f:pathq() }
	ask["x-forwarded-host"] = { txn.f:req_hdr("host") or "" }
	ask["x-forwarded-for"] = { txn.f:src() }

	txn.http:req_del_header("jatah-soft")

	local answer = core.httpclient():get({ url = url, headers = ask, timeout = 2000 })
	local headers = answer.headers or {}
	if answer.status == 200 then
		for _, name in ipairs({ "ratelimit", "ratelimit-policy" }) do
			for _, value in pairs(headers[name] or {}) do
				txn:set_var("txn.jatah_" .. name:gsub("-", "_"), value) -- haproxy.cfg adds them to the response
			end
		end
		-- For the application: that a limit is nearly used up (soft in the rules).
		for _, value in pairs(headers["jatah-soft"] or {}) do
			txn.http:req_set_header("jatah-soft", value)
		end
		return
	end
	local status = answer.status or 0
	if status < 400 or status >= 500 then
		if open then
			return
		end
		status = 503
	end
	local reply = txn:reply({ status = status, body = answer.body or "" })
	for _, name in ipairs(told) do
		for _, value in pairs(headers[name] or {}) do
			reply:add_header(name, value)
		end
	end
	txn:done(reply)
end, 0)
