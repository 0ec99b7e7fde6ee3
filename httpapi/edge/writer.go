package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// writer notes what a handler answers. It can do what the writer below it can: see wrap.
type writer struct {
	http.ResponseWriter
	status  int // the final one; 0: none yet
	unnamed int // the status of a handler that names none; 0: 200, as ever
	bytes   int64
}

// What a writer is wrapped in. Handlers ask by type assertion whether they may flush or hijack, and must not be told what does not hold; a
// struct of one pointer is an interface without an allocation. ReadFrom, WriteString, Push and CloseNotify need no such care: the first two
// can always be done, the third may say that it is not supported, and the last may keep silent.
type (
	flushing         struct{ *writer }
	hijacking        struct{ *writer }
	flushingHijacker struct{ *writer }
)

func (w flushing) Flush()            { _ = w.flush() }
func (w flushing) FlushError() error { return w.flush() }

func (w hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

func (w flushingHijacker) Flush()                                       { _ = w.flush() }
func (w flushingHijacker) FlushError() error                            { return w.flush() }
func (w flushingHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) { return w.hijack() }

// wrap begins anew with the writer below. What it returns is good as long as w is.
func (w *writer) wrap(below http.ResponseWriter, unnamed int) http.ResponseWriter {
	*w = writer{ResponseWriter: below, unnamed: unnamed}
	flusher, hijacker := is[http.Flusher](below), is[http.Hijacker](below)
	switch {
	case flusher && hijacker:
		return flushingHijacker{w}
	case flusher:
		return flushing{w}
	case hijacker:
		return hijacking{w}
	}
	return w
}

// is says whether a writer, or one below it, is a T.
func is[T any](w http.ResponseWriter) bool { _, ok := as[T](w); return ok }

func as[T any](w http.ResponseWriter) (t T, ok bool) {
	for {
		if t, ok = w.(T); ok {
			return t, true
		}
		above, more := w.(interface{ Unwrap() http.ResponseWriter })
		if !more {
			return t, false
		}
		w = above.Unwrap()
	}
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader notes the status, if it is the final one.
func (w *writer) WriteHeader(status int) {
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// begin is before the first byte.
func (w *writer) begin() {
	switch {
	case w.status != 0:
	case w.unnamed != 0:
		w.WriteHeader(w.unnamed)
	default:
		w.status = http.StatusOK
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.begin()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// WriteString spares the copy that Write would need.
func (w *writer) WriteString(s string) (int, error) {
	w.begin()
	n, err := io.WriteString(w.ResponseWriter, s)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets a file go to the connection without passing through here.
func (w *writer) ReadFrom(r io.Reader) (n int64, err error) {
	w.begin()
	if from, ok := w.ResponseWriter.(io.ReaderFrom); ok {
		n, err = from.ReadFrom(r)
	} else {
		n, err = io.Copy(struct{ io.Writer }{w.ResponseWriter}, r)
	}
	w.bytes += n
	return n, err
}

// Push is of HTTP/2.
func (w *writer) Push(target string, opts *http.PushOptions) error {
	if p, ok := as[http.Pusher](w.ResponseWriter); ok {
		return p.Push(target, opts)
	}
	return http.ErrNotSupported
}

// CloseNotify is what handlers used before requests had contexts; gin still insists on it. A writer that has none never tells.
func (w *writer) CloseNotify() <-chan bool {
	if n, ok := as[interface{ CloseNotify() <-chan bool }](w.ResponseWriter); ok {
		return n.CloseNotify()
	}
	return make(chan bool, 1)
}

func (w *writer) flush() error {
	w.begin()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// hijack ends what HTTP has to do with the connection: another protocol is spoken from here on.
func (w *writer) hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}
