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
		e.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			served = true
			c.Request = r
			c.Next()
			// Handlers write to c.Writer, which knows the status better than what is below it: it sends it late.
			if v := edge.FromContext(r.Context()); v != nil {
				v.Answered(c.Writer.Status(), int64(c.Writer.Size()))
			}
		})).ServeHTTP(c.Writer, c.Request)
		if !served {
			c.Abort()
		}
	}
}
