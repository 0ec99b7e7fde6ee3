package frameworks

import (
	"net/http"

	"github.com/labstack/echo/v5"

	"github.com/jatah-io/jatah/httpapi/edge"
)

// Echo is the edge as middleware of echo: r.Use(frameworks.Echo(e)), for an instance or a group. Put it behind middleware.Recover.
//
// echo.WrapMiddleware(e.Middleware) does as well where no rule has Counts or After. But in echo a handler may return an error, of which
// the response is made only when all middleware has returned: then the status would not be known when the request is settled.
func Echo(e *edge.Edge) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) (err error) {
			outer := c.Response()
			e.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Logger()))
				if err = next(c); err != nil {
					c.Echo().HTTPErrorHandler(c, err)
				}
			})).ServeHTTP(outer, c.Request())
			return err // it has its response, which echo does not write twice
		}
	}
}
