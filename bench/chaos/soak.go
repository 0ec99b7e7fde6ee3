package chaos

import "strings"

func (r *run) soakBody(w *strings.Builder, dir, stem string) error { return r.plots(w, dir, stem) }
