package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/jatah-io/jatah/httpapi/edge"
)

// Gin is the edge as middleware of gin: r.Use(frameworks.Gin(e)), for an engine or a group. Put it behind gin.Recovery.
func Gin(e *edge.Edge) gin.HandlerFunc {
	return func(c *gin.Context) {
		served := false
		defer func() {
			if served {
				return
			}
			c.Abort()
			// gin.Recovery would make an empty answer with the status 200 of a request that is dropped.
			if p := recover(); p == http.ErrAbortHandler {
				drop(c)
			} else if p != nil {
				panic(p)
			}
		}()
		e.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served = true
			c.Request = r
			c.Next()
			// Handlers write to c.Writer, which knows the status better than what is below it: it sends it late.
			if v := edge.FromContext(r.Context()); v != nil {
				v.Answered(c.Writer.Status(), int64(c.Writer.Size()))
			}
		})).ServeHTTP(c.Writer, c.Request)
	}
}

// drop closes the connection, or where it cannot, as with HTTP/2, answers as shortly as it can.
func drop(c *gin.Context) {
	if w, ok := c.Writer.(interface{ Unwrap() http.ResponseWriter }); ok {
		if _, ok := w.Unwrap().(http.Hijacker); ok {
			if conn, _, err := c.Writer.Hijack(); err == nil {
				_ = conn.Close()
				return
			}
		}
	}
	c.AbortWithStatus(http.StatusTooManyRequests)
}
