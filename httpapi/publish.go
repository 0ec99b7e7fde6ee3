package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/internal/definition"
)

// Where a limit comes from, as GET says.
const (
	originLocal = "local" // this node's file or program
	originAPI   = "api"   // PUT, here or at another node
)

func (h *Handler) bodyOf(l jatah.Limit) limitBody {
	b := bodyOf(l)
	if b.Origin = originLocal; h.node.Published(l.Name) {
		b.Origin = originAPI
	}
	return b
}

// putLimit defines or changes a limit on all nodes.
func (h *Handler) putLimit(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	limit, p := h.readLimit(r, name)
	if p != nil {
		writeProblem(w, p)
		return
	}
	was, known := h.node.Lookup(name)
	if !known || !h.node.Published(name) || !reflect.DeepEqual(bodyOf(was.Limit()), bodyOf(limit)) {
		now, err := h.node.Publish(r.Context(), limit)
		if err != nil {
			writeProblem(w, publishProblem(err, name))
			return
		}
		was = now
	}
	status := http.StatusOK
	if !known {
		status = http.StatusCreated
	}
	writeJSONAs(w, status, h.bodyOf(was.Limit()))
}

// readLimit reads the body of a PUT, in which the name may be left out.
func (h *Handler) readLimit(r *http.Request, name string) (limit jatah.Limit, p *problem) {
	if _, p := readQuery(r); p != nil {
		return limit, p
	}
	if p := checkType(r.Header); p != nil {
		return limit, p
	}
	body, p := readBody(r, nil)
	if p != nil {
		return limit, p
	}
	v, err := definition.FromJSON(body)
	switch {
	case err != nil:
		return limit, badBody("The body cannot be read: %v.", err)
	case v.Shape != definition.Group:
		return limit, badBody(`The body is %s; send the fields of the limit, for example {"rate":"100/min","burst":20}.`, v.Describe())
	}
	if v, p = withoutAddress(v, name); p != nil {
		return limit, p
	}
	var mistakes []*problem // the first of them
	found := 0
	reader := definition.Reader{Place: definition.PlaceIn(body), Problem: func(_ definition.Value, path, text string) {
		if found++; found > mostMistakes {
			return
		}
		path, text = cut(path, longestPath), cut(text, longestText)
		if path != "" {
			text = path + ": " + text
		}
		mistakes = append(mistakes, badField(path, "%s.", text))
	}}
	limit, ok := reader.Limit(v, "")
	if ok {
		return limit, nil
	}
	return limit, joined(mistakes, found)
}

// withoutAddress makes the name that of the path, and takes away what GET says besides the fields.
func withoutAddress(v definition.Value, name string) (definition.Value, *problem) {
	named := false
	members := make([]definition.Member, 0, len(v.Members)+1)
	for _, m := range v.Members {
		switch m.Name.Text {
		case "name":
			if named = true; m.Value.Shape != definition.String || m.Value.Text != name {
				return v, badField("name", "name is %s, and the address names %s; make them the same, or leave name out.", m.Value.Describe(), quote(name))
			}
		case "origin":
			if m.Value.Shape != definition.String || m.Value.Text != originAPI && m.Value.Text != originLocal {
				return v, badField("origin", "origin says where a limit comes from and cannot be set; leave it out.")
			}
			continue
		}
		members = append(members, m)
	}
	if !named {
		at := v.At // the end of the body, for messages about two places; there is no other name that could be the second
		text := func(s string) definition.Value {
			return definition.Value{Shape: definition.String, Text: s, At: at}
		}
		members = append(members, definition.Member{Name: text("name"), Value: text(name)})
	}
	v.Members = members
	return v, nil
}

const (
	mostMistakes = 5   // of a body that one problem tells
	longestPath  = 200 // bytes of the field of a mistake, whose name the body chooses
	longestText  = 600 // bytes of what is said about it, which may tell a value
)

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// joined is the first problem with what the others say, of so many that were found.
func joined(told []*problem, found int) *problem {
	p := *told[0]
	texts := make([]string, 0, mostMistakes+1)
	for _, one := range told {
		texts = append(texts, one.detail)
	}
	if more := found - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("And %d more.", more))
	}
	p.detail = strings.Join(slices.Compact(texts), " ")
	return &p
}

// deleteLimit removes a limit on all nodes.
func (h *Handler) deleteLimit(w http.ResponseWriter, r *http.Request) {
	if _, p := readQuery(r); p != nil {
		writeProblem(w, p)
		return
	}
	name := r.PathValue("name")
	switch err := h.node.Unpublish(r.Context(), name); {
	case errors.Is(err, jatah.ErrUnknownLimit):
		writeProblem(w, h.unknownLimit(name))
	case err != nil:
		writeProblem(w, publishProblem(err, name))
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// publishProblem says why a limit was not changed or removed.
func publishProblem(err error, name string) *problem {
	conflict := func(slug, format string, args ...any) *problem {
		return &problem{slug: slug, status: http.StatusConflict, field: "name", detail: fmt.Sprintf(format, args...)}
	}
	text := strings.TrimPrefix(err.Error(), jatah.ErrLimit.Error()+" ")
	switch {
	case errors.Is(err, jatah.ErrDefined):
		return conflict("defined-here", "The limit %s is defined by the file or the program of this node; change it there.", quote(name))
	case errors.Is(err, jatah.ErrParent):
		return conflict("has-children", "Other limits have %s as their parent; remove or change those first: %s.", quote(name), strings.TrimPrefix(err.Error(), jatah.ErrParent.Error()+": "))
	case errors.Is(err, jatah.ErrUnknownLimit):
		return conflict("changed-meanwhile", "The limit %s was removed at another node at this moment; look at it and send it again.", quote(name))
	case errors.Is(err, jatah.ErrFull):
		return &problem{slug: "limits-full", status: http.StatusInsufficientStorage,
			detail: "There is no room for it: " + strings.TrimPrefix(err.Error(), "cluster: ") + "."}
	case errors.Is(err, jatah.ErrLimit): // by itself it is good
		return badField("parent", "The limit does not go with the others: %s.", text)
	case errors.Is(err, jatah.ErrClosed):
		return undecided("This node is shutting down; ask another one.")
	}
	return undecided("The limit was not changed: %v.", err)
}
