package config

import (
	"fmt"
	"slices"
	"strings"
)

// checkPath takes what edge.Path understands as it is meant.
func checkPath(s string) error {
	if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?#") {
		return fmt.Errorf("%q is no path: it begins with / and has no query", shorten(s))
	}
	for element := range strings.SplitSeq(s[1:], "/") {
		if element != "*" && strings.Contains(element, "*") {
			return fmt.Errorf("%q has a * within an element: a * stands for a whole one, and at the end for all below", shorten(s))
		}
	}
	return nil
}

func checkMethod(s string) error {
	if !isToken(s) || s != strings.ToUpper(s) {
		return fmt.Errorf("%q is no method: write it in capitals, such as POST", shorten(s))
	}
	return nil
}

func checkHeader(s string) error {
	if !isToken(s) {
		return fmt.Errorf("%q is no name of a header: write one such as X-Api-Key", shorten(s))
	}
	return nil
}

func checkHeaderIs(s string) error {
	name, _, _ := strings.Cut(s, "=")
	return checkHeader(name)
}

func checkCookie(s string) error {
	if !isToken(s) {
		return fmt.Errorf("%q is no name of a cookie: write one such as sid", shorten(s))
	}
	return nil
}

var partWords = []string{"account", "address", "route", "method", "header:NAME", "cookie:NAME", "text:WORD"}

func checkPart(s string) error {
	kind, name, named := strings.Cut(s, ":")
	switch {
	case !named && slices.Contains(partWords[:4], s):
		return nil
	case named && kind == "header":
		return checkHeader(name)
	case named && kind == "cookie":
		return checkCookie(name)
	case named && kind == "text" && name != "":
		return nil
	}
	return fmt.Errorf("%q is no part of a key: %s", shorten(s), among(s, partWords, ""))
}

// isToken says whether a word can be the name of a header, a cookie or a method.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
