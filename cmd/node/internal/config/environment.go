package config

import (
	"regexp"
	"slices"
	"strings"
)

const variablePrefix = "JATAH_"

// Variable is the name of the environment variable of a field.
func Variable(path string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

// serviceLink matches what Kubernetes and Docker links put into the
// environment of a container for a service that is itself called jatah or
// jatah-something; refusing those would keep the node from starting there.
var serviceLink = regexp.MustCompile(`^JATAH_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ClientVariables are those of commands that ask a node, which serve leaves alone. The names of files are taken as they are.
const (
	ClientAddr      = variablePrefix + "ADDR"
	ClientToken     = variablePrefix + "TOKEN"
	ClientTokenFile = variablePrefix + "TOKEN_FILE"
	ClientCA        = variablePrefix + "CA"
	ClientCert      = variablePrefix + "CERT"
	ClientKey       = variablePrefix + "KEY"
)

var ofClients = []string{ClientAddr, ClientToken, ClientTokenFile, ClientCA, ClientCert, ClientKey}

// readEnvironment reads the variables that begin with JATAH_, in the order of
// their names. An empty variable counts as not set: that is how a template
// leaves one out.
func (l *loader) readEnvironment(environ []string) {
	paths := map[string]string{Variable(limitsPath): limitsPath}
	names := []string{Variable(limitsPath)}
	for _, f := range nodeFields {
		paths[Variable(f.path)] = f.path
		names = append(names, Variable(f.path))
	}
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, variablePrefix) || value == "" {
			continue
		}
		at := place{layer: inEnvironment, source: name}
		path, known := paths[name]
		switch {
		case known:
			l.setText(at, path, value)
		case slices.Contains(ofClients, name):
			l.mistakable = l.mistakable || name == ClientTokenFile
		case serviceLink.MatchString(name):
		default:
			l.problem(at, "", "%s", unknownVariable(name, names))
		}
	}
}

// checkTokenNames refuses a variable whose name is so like another that it may have been meant for it: the node would be open.
func (l *loader) checkTokenNames() {
	if l.mistakable && l.cfg.TokensFile == "" {
		l.problem(place{layer: inEnvironment, source: ClientTokenFile}, "", "is the token that commands such as `jatah take` send; for the tokens that a node takes set %s, else unset it here", Variable(tokensFilePath))
	}
}

func unknownVariable(name string, known []string) string {
	// The common prefix says nothing about how much of the word is right.
	trimmed := make([]string, len(known))
	for i, k := range known {
		trimmed[i] = strings.TrimPrefix(k, variablePrefix)
	}
	word := strings.TrimPrefix(name, variablePrefix)
	if near := nearest(word, trimmed); near != "" {
		return "is no setting: did you mean " + variablePrefix + near + "?"
	}
	// JATAH_JOIN for JATAH_CLUSTER_JOIN.
	if slices.Contains(trimmed, "CLUSTER_"+word) {
		return "is no setting: did you mean " + variablePrefix + "CLUSTER_" + word + "?"
	}
	return "is no setting; there are " + strings.Join(known, ", ")
}
