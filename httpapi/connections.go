package httpapi

import (
	"cmp"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultConnections is the most connections that a [Listener] has at once if it is not told. Each takes about 10 kB and a file descriptor.
const DefaultConnections = 10_000

// ConnectionStats are the connections of a [Listener].
type ConnectionStats struct {
	Open             int    // now
	Accepted         uint64 // since the start
	RefusedTotal     uint64 // closed at once, since there were as many as may be
	RefusedByAddress uint64 // closed at once, since there were as many of that address
}

// Listener bounds how many connections there are. One more is accepted and closed at once, so that its client goes elsewhere instead of
// waiting. Use [NewListener]. Safe for concurrent use.
type Listener struct {
	net.Listener
	max, perAddress int
	log             *slog.Logger
	full            occasion

	open                             atomic.Int64
	accepted, refused, refusedByPeer atomic.Uint64

	mu sync.Mutex
	by map[netip.Addr]int // connections of an address, where that is bounded
}

// NewListener bounds ln. max is for all connections, 0: DefaultConnections; perAddress for those of one address, or of 64 bits of
// IPv6, 0: any number, as is needed where all come through one proxy. A nil log is slog.Default.
func NewListener(ln net.Listener, max, perAddress int, log *slog.Logger) *Listener {
	if log == nil {
		log = slog.Default()
	}
	return &Listener{Listener: ln, max: cmp.Or(max, DefaultConnections), perAddress: perAddress, log: log, by: map[netip.Addr]int{}}
}

// Stats are the connections so far.
func (l *Listener) Stats() ConnectionStats {
	return ConnectionStats{Open: int(l.open.Load()), Accepted: l.accepted.Load(), RefusedTotal: l.refused.Load(), RefusedByAddress: l.refusedByPeer.Load()}
}

// Accept waits for a connection that there is room for.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b := l.admit(c); b != nil {
			return b, nil
		}
		c.Close()
	}
}

// admit counts a connection, or says that there is no room for it.
func (l *Listener) admit(c net.Conn) net.Conn {
	if l.open.Add(1) > int64(l.max) {
		l.open.Add(-1)
		l.refused.Add(1)
		l.warn("all", l.max, c)
		return nil
	}
	b := &boundConn{Conn: c, of: l}
	if l.perAddress > 0 {
		b.peer = network(c.RemoteAddr())
		l.mu.Lock()
		room := l.by[b.peer] < l.perAddress
		if room {
			l.by[b.peer]++
		}
		l.mu.Unlock()
		if !room {
			l.open.Add(-1)
			l.refusedByPeer.Add(1)
			l.warn("one address", l.perAddress, c)
			return nil
		}
	}
	l.accepted.Add(1)
	return b
}

func (l *Listener) warn(of string, most int, c net.Conn) {
	if l.full.comes(time.Now()) {
		l.log.Warn("connections are refused, as there are as many as may be", "of", of, "most", most, "peer", c.RemoteAddr().String())
	}
}

// network is an address as far as it says who is there: whoever has one of IPv6 has 64 bits of them.
func network(a net.Addr) netip.Addr {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.Addr{}
	}
	ip := ap.Addr().Unmap().WithZone("")
	if p, err := ip.Prefix(64); err == nil && ip.Is6() {
		return p.Addr()
	}
	return ip
}

// boundConn gives its place back when it is closed.
type boundConn struct {
	net.Conn
	of   *Listener
	peer netip.Addr
	once sync.Once
}

func (c *boundConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		l := c.of
		l.open.Add(-1)
		if l.perAddress == 0 {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.by[c.peer]--; l.by[c.peer] <= 0 {
			delete(l.by, c.peer)
		}
	})
	return err
}

// mostErrors is how many lines a second net/http may log: anybody who can connect can cause them.
const mostErrors = 10

// errorLog makes the lines of net/http warnings.
type errorLog struct {
	log *slog.Logger

	mu     sync.Mutex
	second int64
	lines  int
	unsaid int
}

// Write takes one line.
func (e *errorLog) Write(line []byte) (int, error) {
	e.mu.Lock()
	now := time.Now().Unix()
	if now != e.second {
		e.second, e.lines = now, 0
	}
	e.lines++
	if e.lines > mostErrors {
		e.unsaid++
		e.mu.Unlock()
		return len(line), nil
	}
	unsaid := e.unsaid
	e.unsaid = 0
	e.mu.Unlock()
	text := strings.TrimRight(string(line), "\n")
	if unsaid > 0 {
		e.log.Warn(text, "others", unsaid)
	} else {
		e.log.Warn(text)
	}
	return len(line), nil
}
