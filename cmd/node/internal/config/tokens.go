package config

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/jatah-io/jatah/httpapi"
)

var tokenFields = []string{"name", "role", "token", "sha256", "limits"}

// readTokens reads a tokens file. plain says that a token itself stands in it. What is in the file is never shown, wherever it stands: a token that was
// written in the wrong place is one nevertheless.
func (l *loader) readTokens(name string, data []byte) (tokens *httpapi.Tokens, plain bool) {
	var all []httpapi.Token
	var at ast.Node
	before := len(l.problems)
	l.readYAML(name, data, func(w *walker, body ast.Node) { all, at, plain = w.tokensFile(body) })
	if len(l.problems) > before {
		return nil, plain
	}
	tokens, err := httpapi.NewTokens(all...)
	if err != nil {
		where := place{inFile, name, 1, 1}
		if at != nil {
			where = (&walker{loader: l, name: name}).place(at)
		}
		l.problem(where, "tokens", "%s", plainToken(err))
	}
	return tokens, plain
}

const tokenForm = `- {name: web, role: take, token: "..."}`

func (w *walker) tokensFile(body ast.Node) (all []httpapi.Token, at ast.Node, plain bool) {
	if !isMapping(body) {
		w.problem(body, "", "needs a list of tokens under `tokens:`, each as in %s", tokenForm)
		return nil, nil, false
	}
	for _, e := range w.entries(body, "") {
		if e.key != "tokens" {
			w.problem(e.node, "", "has a field that is none: a tokens file has nothing but a list under `tokens:`")
			continue
		}
		at = e.node
		seq, ok := e.value.(*ast.SequenceNode)
		if !ok {
			w.problem(e.value, "tokens", "needs a list, each as in %s", tokenForm)
			continue
		}
		for i, item := range seq.Values {
			one, secret := w.token(item, fmt.Sprintf("tokens[%d]", i))
			all, plain = append(all, one), plain || secret
		}
	}
	return all, at, plain
}

// token reads one; secret says that it stands there itself.
func (w *walker) token(n ast.Node, path string) (t httpapi.Token, secret bool) {
	if !isMapping(n) {
		w.problem(n, path, "needs fields, as in %s", tokenForm)
		return t, false
	}
	given := map[string]bool{}
	for _, e := range w.entries(n, path) {
		at := under(path, e.key)
		if !slices.Contains(tokenFields, e.key) {
			w.problem(e.node, path, "has a field that is none; there are %s", strings.Join(tokenFields, ", "))
			continue
		}
		given[e.key] = true
		if e.key == "limits" {
			t.Limits = w.texts(e, at)
			continue
		}
		if e.key == "role" {
			w.roles(e, at, &t.Roles)
			continue
		}
		value, ok := scalar(e.value, text)
		if !ok {
			w.problem(e.value, at, "must be a text: put it in quotes")
			continue
		}
		var err error
		switch e.key {
		case "name":
			err = checkTokenName(value)
			t.Name = value
		case "token":
			secret = true
			t.Digest, err = httpapi.DigestToken(value)
		case "sha256":
			var digest []byte
			if digest, err = hex.DecodeString(value); err != nil || len(digest) != len(t.Digest) {
				err = fmt.Errorf("must be 64 hexadecimal digits: printf %%s TOKEN | sha256sum")
			}
			copy(t.Digest[:], digest)
		}
		if err != nil {
			w.problem(e.value, at, "%s", plainToken(err))
		}
	}
	switch {
	case !given["name"]:
		w.problem(n, path, "has no name: add `name: ` with who sends the token, for the log")
	case !given["role"]:
		w.problem(n, path, "has no role: add `role: ` with take, read or admin, or several in a list")
	case given["token"] == given["sha256"]:
		w.problem(n, path, "needs either `token: ` or `sha256: ` with its digest")
	}
	return t, secret
}

func checkTokenName(s string) error {
	var c Config
	return setName(64, func(*Config) *string { return new(string) })(&c, []string{s})
}

// roles reads one role, or a list.
func (w *walker) roles(e entry, path string, to *httpapi.Role) {
	names := []string{}
	if one, ok := scalar(e.value, text); ok {
		names = append(names, one)
	} else if names = w.texts(e, path); names == nil {
		return
	}
	for _, name := range names {
		role, ok := httpapi.RoleOf(name)
		if !ok {
			w.problem(e.value, path, "must be take, read or admin, or a list of them")
			return
		}
		*to |= role
	}
}

// texts reads a list of texts that must have some.
func (w *walker) texts(e entry, path string) (out []string) {
	seq, ok := e.value.(*ast.SequenceNode)
	if !ok || len(seq.Values) == 0 {
		w.problem(e.value, path, "needs a list, as in [a, b], or remove the line")
		return nil
	}
	for _, item := range seq.Values {
		one, ok := scalar(item, text)
		if !ok || one == "" {
			w.problem(item, path, "needs a list of texts")
			return nil
		}
		out = append(out, one)
	}
	return out
}

// plainToken is an error for who writes the file.
func plainToken(err error) string {
	return strings.TrimPrefix(err.Error(), httpapi.ErrToken.Error()+": ")
}
