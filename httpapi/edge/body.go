package edge

import (
	"io"
	"net/http"
	"sync/atomic"
)

// bodyPeek is what was read of a body to find its cost.
type bodyPeek struct {
	data []byte
	rest io.ReadCloser // what follows
	err  error         // with which rest ended, io.EOF too; nil: there may be more
}

// peek reads the beginning of the body; whole says that this is all of it, and that it is at most bound bytes. The request gets a body
// that begins with what was read. A server sends "100 Continue" if the client waits for that; a body whose announced length is above
// the bound is not begun.
func (q *Request) peek(bound int64) (data []byte, whole bool) {
	r := q.HTTP
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, true
	case r.ContentLength > bound:
		return nil, false
	case q.body == nil:
		q.body = &bodyPeek{rest: r.Body}
		r.Body = &replay{peek: q.body}
	}
	b := q.body
	if b.err == nil && int64(len(b.data)) <= bound {
		more, err := io.ReadAll(io.LimitReader(b.rest, bound+1-int64(len(b.data))))
		b.data = append(b.data, more...)
		if err == nil && int64(len(b.data)) <= bound {
			err = io.EOF
		}
		b.err = err
	}
	return b.data, b.err == io.EOF && int64(len(b.data)) <= bound
}

// replay is a body of which the beginning was read before. It is read by one goroutine, and may be closed by another meanwhile, as those of net/http are.
type replay struct {
	peek   *bodyPeek
	off    int
	closed atomic.Bool
}

func (r *replay) Read(p []byte) (int, error) {
	if r.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if r.off < len(r.peek.data) {
		n := copy(p, r.peek.data[r.off:])
		if r.off += n; r.off == len(r.peek.data) {
			r.peek.data, r.off = nil, 0 // it may be large, and the request go on for long
		}
		return n, nil
	}
	if r.peek.err != nil {
		return 0, r.peek.err
	}
	return r.peek.rest.Read(p)
}

func (r *replay) Close() error {
	r.closed.Store(true)
	return r.peek.rest.Close()
}
