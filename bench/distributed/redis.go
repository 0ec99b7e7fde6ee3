package distributed

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/jatah-io/jatah/bench/internal/servers"
)

// tokenBucket keeps tokens and the time of the last request in a hash. It takes the time of the server, so that clients need not agree.
var tokenBucket = redis.NewScript(`
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local now = t[1] + t[2] / 1000000
local have = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(have[1]) or burst, tonumber(have[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local allowed = tokens >= cost
if allowed then tokens = tokens - cost end
redis.call('HSET', KEYS[1], 'tokens', string.format('%.17g', tokens), 'at', string.format('%.17g', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return allowed and 1 or 0
`)

// redisTargets asks one server in three ways, each client with a pool of its own.
func redisTargets(ctx context.Context, g *servers.Group, r rule, clients int) (ts []*target, stop func(), err error) {
	var dbs []*redis.Client
	var rates []*redis_rate.Limiter
	stop = func() {
		for _, db := range dbs {
			_ = db.Close()
		}
	}
	for range clients {
		db := redis.NewClient(&redis.Options{Addr: g.Addr})
		dbs, rates = append(dbs, db), append(rates, redis_rate.NewLimiter(db))
	}
	if err := tokenBucket.Load(ctx, dbs[0]).Err(); err != nil {
		stop()
		return nil, nil, fmt.Errorf("distributed: loading the script of the token bucket: %w", err)
	}
	keys, err := firstKeys(ctx, nil)
	if err != nil {
		stop()
		return nil, nil, err
	}
	add := func(name, note string, take func(ctx context.Context, client int, key string) (bool, error)) {
		ts = append(ts, &target{
			name: name, note: note + "; go-redis at its defaults, " + g.Note, clients: clients, batch: 1, keys: keys, procs: g.Procs,
			take: func(ctx context.Context, client int, keys []string) (answer, error) {
				ok, err := take(ctx, client, keys[0])
				return one(ok), err
			},
		})
	}
	limit := redis_rate.Limit{Rate: int(r.rate), Burst: int(r.burst), Period: time.Second}
	add("redis_rate", "GCRA in a script, Limiter.Allow", func(ctx context.Context, client int, key string) (bool, error) {
		res, err := rates[client].Allow(ctx, key, limit)
		return err == nil && res.Allowed == 1, err
	})
	add("redis INCR+EXPIRE", "a counter for each second, INCR and EXPIRE in a transaction; a fixed window, up to twice the limit across its edge",
		func(ctx context.Context, client int, key string) (bool, error) {
			name := "incr:" + key + ":" + strconv.FormatInt(time.Now().Unix(), 10)
			var count *redis.IntCmd
			_, err := dbs[client].TxPipelined(ctx, func(p redis.Pipeliner) error {
				count = p.Incr(ctx, name)
				p.Expire(ctx, name, 2*time.Second)
				return nil
			})
			return err == nil && count.Val() <= r.rate, err
		})
	add("redis token bucket", "HMGET, HSET and PEXPIRE in a script, EVALSHA", func(ctx context.Context, client int, key string) (bool, error) {
		n, err := tokenBucket.Run(ctx, dbs[client], []string{"bucket:" + key}, r.rate, r.burst, 1).Int()
		return n == 1, err
	})
	return ts, stop, nil
}
