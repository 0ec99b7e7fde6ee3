package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// MinToken and MaxToken bound the length of a token, in bytes: 24 characters of base64 are 18 random bytes, which nobody guesses.
	MinToken = 24
	MaxToken = 256
	// MaxTokens is how many tokens there may be: all are compared with each that is presented.
	MaxTokens = 256
)

// ErrToken is what every token that cannot be used is (errors.Is). The text never has the token.
var ErrToken = errors.New("httpapi: bad token")

// Role is what a caller may do: a set of bits, 0 for nothing that needs a token.
type Role uint8

const (
	// RoleTake may ask for decisions and change what keys have used: take, take-all, batch, refund, charge, acquire, release, forward auth.
	RoleTake Role = 1 << iota
	// RoleRead may look at everything.
	RoleRead
	// RoleAdmin may change definitions and members, and reset keys; and all that the others may.
	RoleAdmin
)

var roleNames = []struct {
	role Role
	name string
}{{RoleTake, "take"}, {RoleRead, "read"}, {RoleAdmin, "admin"}}

// RoleOf is the role of that name: take, read or admin.
func RoleOf(name string) (Role, bool) {
	for _, r := range roleNames {
		if r.name == name {
			return r.role, true
		}
	}
	return 0, false
}

// String names the roles, with commas between them.
func (r Role) String() string {
	var names []string
	for _, one := range roleNames {
		if r&one.role != 0 {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, ",")
}

// may says whether who has the roles r may do what needs one.
func (r Role) may(need Role) bool { return r&(need|RoleAdmin) != 0 }

// Token is a secret that callers send, as it is known to the node: by its digest only. A plain value.
type Token struct {
	Name  string // for logs; no other token has it
	Roles Role
	// Limits are the only ones that it may ask about, by name, or by the beginning of names with * after it. Empty: all. For tokens with
	// no role but RoleTake.
	Limits []string
	Digest [sha256.Size]byte // see DigestToken
}

// DigestToken is what a node keeps of a token, its SHA-256. The error is ErrToken: the token is too short or too long, or has bytes that do not
// go into a header.
//
// There is no salt: a token is random, unlike a password, so that there is no table to look it up in.
func DigestToken(token string) ([sha256.Size]byte, error) {
	switch {
	case len(token) < MinToken:
		return [sha256.Size]byte{}, fmt.Errorf("%w: it has %d characters, and %d are needed so that nobody guesses it (make one with: openssl rand -hex 32)", ErrToken, len(token), MinToken)
	case len(token) > MaxToken:
		return [sha256.Size]byte{}, fmt.Errorf("%w: it has %d characters, and at most %d go into a header", ErrToken, len(token), MaxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return !tokenRune(r) }):
		return [sha256.Size]byte{}, fmt.Errorf("%w: it has other characters than letters, digits and -._~+/= (make one with: openssl rand -hex 32)", ErrToken)
	}
	return sha256.Sum256([]byte(token)), nil
}

// tokenRune is what RFC 6750 lets a bearer token have.
func tokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._~+/=", r)
}

// Tokens are all that a node knows. They never change, so any number of goroutines may use them. Use [NewTokens].
type Tokens struct {
	all     []Token
	digests [][sha256.Size]byte // side by side, as each look-up reads all of them
	scoped  bool                // one of them is for some limits only
}

// NewTokens makes a set. The error is ErrToken: there is none, or there are too many, or two have the same name or secret, or one has no name, no
// roles or limits that are not for its roles.
func NewTokens(all ...Token) (*Tokens, error) {
	switch {
	case len(all) == 0:
		return nil, fmt.Errorf("%w: there are none, so that nobody could call", ErrToken)
	case len(all) > MaxTokens:
		return nil, fmt.Errorf("%w: there are %d, and at most %d may be", ErrToken, len(all), MaxTokens)
	}
	t := &Tokens{}
	for _, one := range all {
		switch same := slices.IndexFunc(t.all, func(o Token) bool { return o.Name == one.Name || o.Digest == one.Digest }); {
		case one.Name == "":
			return nil, fmt.Errorf("%w: one has no name", ErrToken)
		case one.Roles == 0 || one.Roles > RoleTake|RoleRead|RoleAdmin:
			return nil, fmt.Errorf("%w: %q has no role; give it take, read or admin", ErrToken, one.Name)
		case len(one.Limits) > 0 && one.Roles != RoleTake:
			return nil, fmt.Errorf("%w: %q is for some limits only, which a token can be whose only role is take", ErrToken, one.Name)
		case slices.Contains(one.Limits, ""):
			return nil, fmt.Errorf("%w: %q has a limit without a name", ErrToken, one.Name)
		case same >= 0 && t.all[same].Name == one.Name:
			return nil, fmt.Errorf("%w: two are named %q", ErrToken, one.Name)
		case same >= 0:
			return nil, fmt.Errorf("%w: %q and %q are the same secret; make another one", ErrToken, t.all[same].Name, one.Name)
		}
		one.Limits = slices.Clone(one.Limits)
		t.scoped = t.scoped || len(one.Limits) > 0
		t.all, t.digests = append(t.all, one), append(t.digests, one.Digest)
	}
	return t, nil
}

// Len is how many there are.
func (t *Tokens) Len() int { return len(t.all) }

// find is the token that was presented, nil if there is none such. All are compared, and by their digests, so that the time it takes
// says nothing about any of them.
func (t *Tokens) find(presented string) *Token {
	if len(presented) > MaxToken {
		return nil
	}
	var buf [MaxToken]byte
	sum := sha256.Sum256(buf[:copy(buf[:], presented)])
	found := 0 // index and 1
	for i := range t.digests {
		same := subtle.ConstantTimeCompare(sum[:], t.digests[i][:])
		found = subtle.ConstantTimeSelect(same, i+1, found)
	}
	if found == 0 {
		return nil
	}
	return &t.all[found-1]
}

// covers says whether the token is for this limit.
func (t *Token) covers(limit string) bool {
	return len(t.Limits) == 0 || slices.ContainsFunc(t.Limits, func(pattern string) bool {
		if head, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(limit, head)
		}
		return limit == pattern
	})
}
