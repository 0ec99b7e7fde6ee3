package clientip

import (
	"log/slog"
	"net/http"
	"net/netip"
	"sync/atomic"
)

// warnings are logged once each: what is wrong is wrong with every request.
type warnings struct {
	to            *slog.Logger
	untrustedOnce atomic.Bool
	missingOnce   atomic.Bool
}

func (w *warnings) log(text string, args ...any) {
	to := w.to
	if to == nil {
		to = slog.Default()
	}
	to.Warn(text, args...)
}

// Shared address space (RFC 6598): carriers use it, and so do clouds and overlay networks for what is inside.
var carrier = netip.MustParsePrefix("100.64.0.0/10")

// untrusted: a request came from a peer that is not trusted. Visitors from the Internet do not have the addresses that it
// looks for, so that most likely a proxy or tunnel is in front, and all visitors have its address. While others
// are trusted, such a peer may well be a client from inside, unless it says itself that it speaks for somebody.
func (w *warnings) untrusted(peer netip.Addr, h http.Header, others bool) {
	if w.untrustedOnce.Load() {
		return
	}
	inside := !peer.IsValid() || peer.IsLoopback() || peer.IsPrivate() || peer.IsLinkLocalUnicast() || carrier.Contains(peer)
	if !inside {
		return
	}
	header := forwardingHeader(h)
	if others && header == "" || !w.untrustedOnce.CompareAndSwap(false, true) {
		return
	}
	switch {
	case !peer.IsValid():
		w.log("requests come without an IP address, as over a unix socket, and such peers are not trusted: "+
			"if a proxy is in front, all visitors share one key; set TrustUnix", "header", header)
	case others:
		w.log("requests come from a loopback or private address that is not in trusted_proxies but forwards for others: "+
			"if it is your proxy, all visitors share one key; name it in trusted_proxies", "peer", peer.String(), "header", header)
	default:
		w.log("requests come from a loopback or private address and no proxy is trusted: "+
			"if a proxy or tunnel is in front, all visitors share one key; name it in trusted_proxies", "peer", peer.String(), "header", header)
	}
}

// missing: a trusted proxy did not send the header. Alone that may be a health check; if it sent another one, the wrong
// one is configured.
func (w *warnings) missing(peer netip.Addr, header string, h http.Header) {
	if w.missingOnce.Load() {
		return
	}
	other := forwardingHeader(h)
	if other == "" || !w.missingOnce.CompareAndSwap(false, true) {
		return
	}
	w.log("a trusted proxy does not send the header that names its clients, so that they share one key: "+
		"set the header to one that it overwrites",
		"peer", peer.String(), "header", header, "has", other)
}

func (w *warnings) everybody(header string) {
	w.log("every address is a trusted proxy, so that clients may write their address themselves; "+
		"name only your proxies in trusted_proxies", "header", header)
}

// forwardingHeader is the name of a header that proxies add, or "".
func forwardingHeader(h http.Header) string {
	for _, name := range [...]string{forwardedFor, forwarded, "Cf-Connecting-Ip", "X-Real-Ip", "True-Client-Ip", "X-Client-Ip"} {
		if len(h[name]) > 0 {
			return name
		}
	}
	return ""
}
