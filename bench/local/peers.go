package local

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"

	"github.com/jatah-io/jatah/bench/floor"
)

// quota is a limit in the terms that all peers have in common.
type quota struct {
	tokens int64
	per    time.Duration
}

var (
	// ample never denies: a billion tokens per second, an hour's at once.
	ample = quota{3_600_000_000_000, time.Hour}
	// spent denies all but the first request of a key.
	spent = quota{1, 1000 * time.Hour}
)

// peer is one way to limit each of many keys.
type peer struct {
	name string
	note string // what it is, how it is set up, what it leaves out; for the report
	// blocks: it delays requests instead of denying them.
	blocks bool
	// big: it is also measured with ten million keys, as only ours, the floor and the best peers are.
	big bool
	// open makes a limiter that will see so many keys.
	open func(ctx context.Context, q quota, keys int) (*subject, error)
}

// subject is an open peer.
type subject struct {
	// take asks for one token of a key, and says whether it got it.
	take func(key string) bool
	// learn makes a key known, which may cost a token. Nil: a take does.
	learn func(key string) error
	// notLocal says how many of the takes since the last call were not decided in memory. Nil: all were.
	notLocal func() int64
	close    func()
}

func peers() []peer {
	return append([]peer{
		jatahHybrid(), jatahAlone(), jatahSplit(),
		{name: "floor", big: true, open: openFloor,
			note: "what the machine allows: hash, table, key comparison and one compare-and-swap, without clock, refill, growth or API; made for the number of keys"},
		{name: "go-limiter", big: true, open: openGoLimiter,
			note: "`memorystore` with its defaults but for the limit: a window that refills all at once, so up to twice the limit across its edge; always one token; forgets keys after 12 hours. Its interval is an hour: its ticks lose tokens above some 31 000 per second and interval"},
		{name: "throttled", big: true, open: openThrottled,
			note: "GCRA on `memstore`, without a bound for the number of keys, which is quicker than the LRU of its examples; never forgets a key. It tries a compare-and-swap 1000 times before a request fails instead of 10, with which some requests of two goroutines on one key failed"},
		{name: "x/time/rate", open: openXTime,
			note: "a `rate.Limiter` for each key in a `sync.Map`, as services write it; never forgets a key; says only yes or no"},
		{name: "ulule", open: openUlule, note: "memory store with its defaults; a fixed window"},
		{name: "httprate", open: openHTTPRate,
			note: "`OnLimit` with its local counter: its only call that counts, which also sets headers of a response; two windows; keeps hashes of 64 bits and no keys"},
		{name: "uber", blocks: true, open: openUber,
			note: "a `ratelimit.Limiter` for each key in a `sync.Map`; it delays and never denies, so it has no denials to measure; never forgets a key"},
	}, gubernatorLibrary()...)
}

// openFloor gives each key its tokens when it is made known.
func openFloor(_ context.Context, q quota, keys int) (*subject, error) {
	t := floor.New(keys, keyBytes(keys))
	return &subject{
		take:  func(key string) bool { return t.Take(key, 1) },
		learn: func(key string) error { return t.Give(key, q.tokens) },
		close: func() {},
	}, nil
}

func openXTime(_ context.Context, q quota, _ int) (*subject, error) {
	var limiters sync.Map // string: *rate.Limiter
	every := rate.Limit(float64(q.tokens) / q.per.Seconds())
	return &subject{close: func() {}, take: func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, rate.NewLimiter(every, int(q.tokens)))
		}
		return l.(*rate.Limiter).Allow()
	}}, nil
}

func openGoLimiter(ctx context.Context, q quota, _ int) (*subject, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: uint64(q.tokens), Interval: q.per})
	if err != nil {
		return nil, err
	}
	return &subject{
		close: func() { _ = store.Close(ctx) },
		take: func(key string) bool {
			_, _, _, ok, err := store.Take(ctx, key)
			return ok && err == nil
		},
	}, nil
}

func openThrottled(ctx context.Context, q quota, _ int) (*subject, error) {
	store, err := memstore.NewCtx(0)
	if err != nil {
		return nil, err
	}
	// MaxBurst is what may come besides the first.
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerDuration(int(q.tokens), q.per), MaxBurst: int(q.tokens) - 1})
	if err != nil {
		return nil, err
	}
	l.SetMaxCASAttemptsLimit(1000)
	return &subject{close: func() {}, take: func(key string) bool {
		limited, _, err := l.RateLimitCtx(ctx, key, 1)
		return !limited && err == nil
	}}, nil
}

func openUlule(ctx context.Context, q quota, _ int) (*subject, error) {
	l := limiter.New(memory.NewStore(), limiter.Rate{Limit: q.tokens, Period: q.per})
	return &subject{close: func() {}, take: func(key string) bool {
		c, err := l.Get(ctx, key)
		return err == nil && !c.Reached
	}}, nil
}

// headers is a response of which only the headers are kept.
type headers http.Header

func (h headers) Header() http.Header         { return http.Header(h) }
func (h headers) Write(p []byte) (int, error) { return len(p), nil }
func (h headers) WriteHeader(int)             {}

func openHTTPRate(ctx context.Context, q quota, _ int) (*subject, error) {
	l := httprate.NewRateLimiter(int(q.tokens), q.per)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	responses := sync.Pool{New: func() any { return make(headers) }}
	return &subject{close: func() {}, take: func(key string) bool {
		w := responses.Get().(headers)
		over := l.OnLimit(w, r, key)
		responses.Put(w)
		return !over
	}}, nil
}

func openUber(_ context.Context, q quota, _ int) (*subject, error) {
	var limiters sync.Map // string: ratelimit.Limiter
	return &subject{close: func() {}, take: func(key string) bool {
		l, ok := limiters.Load(key)
		if !ok {
			l, _ = limiters.LoadOrStore(key, ratelimit.New(int(q.tokens), ratelimit.Per(q.per)))
		}
		l.(ratelimit.Limiter).Take()
		return true
	}}, nil
}
