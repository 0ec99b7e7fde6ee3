package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jatah-io/jatah"
)

// field is one thing of the node that can be set.
type field struct {
	path string // under its section, "cluster.join"
	flag string // "" when there is no flag of its own
	kind kind
	want string // what belongs here, for messages and for the help of flags
	set  func(c *Config, values []string) error
}

// Flag is a field as the command line sees it. Path is the field's path in the file, Flag its flag without dashes (or
// ""), Want what belongs there, Bool and List how the flag is given.
type Flag struct {
	Path, Name, Want string
	Bool, List       bool
}

// Flags lists the fields that have a flag of their own, in the order of the
// file; limits are "limits", repeatable.
func Flags() []Flag {
	var out []Flag
	for _, f := range nodeFields {
		if f.flag != "" {
			out = append(out, Flag{Path: f.path, Name: f.flag, Want: f.want, Bool: f.kind == boolean, List: f.kind == list})
		}
	}
	return append(out, Flag{Path: limitsPath, Name: "limit",
		Want: "a limit such as api=100/min,burst=20,mode=strict,fallback=deny or sms=2/min+20/d,algorithm=sliding_log; an option is any field of a limit", List: true})
}

const (
	limitsPath = "limits"
	secretPath = "cluster.secret"
	// secretsPath and secretFilePath are two more ways to say it.
	secretsPath    = "cluster.secrets"
	secretFilePath = "cluster.secret_file"
)

// nodeFields has every field outside limits. The secret has no flag: flags
// can be read by every user of the machine.
var nodeFields = slices.Concat([]*field{
	{"http", "http", word, "an address such as " + DefaultHTTP, setAddress(func(c *Config) *string { return &c.HTTP })},
	{"node", "node", text, "a name that no other node of the cluster has, such as n1", setName(128, func(c *Config) *string { return &c.Node.Node })},
	{"state_dir", "state-dir", text, "a directory for what was used, which then survives a stop of all nodes, such as /var/lib/jatah", setText(func(c *Config) *string { return &c.Node.StateDir })},
	{limitsDirPath, "limits-dir", text, "a directory with files of limits, such as /etc/jatah/limits.d", setText(func(c *Config) *string { return &c.LimitsDir })},
	{"log_refusals", "log-refusals", boolean, "true or false", setBool(func(c *Config) *bool { return &c.LogRefusals })},
	{"max_keys", "max-keys", integer, "the most keys that this node remembers, such as 1000000", setMaxKeys},
	{"max_memory", "max-memory", text, "the most memory for keys, such as 512MiB", setMaxMemory},
	{"overflow", "overflow", word, "what a new key gets when there is no room: deny, allow or shared", setOverflow},
	{"cluster.name", "cluster", text, "the cluster's name, such as jatah", setName(64, func(c *Config) *string { return &c.Node.Cluster })},
	{"cluster.bind", "bind", word, "an address such as " + DefaultBind, setAddress(func(c *Config) *string { return &c.Node.Bind })},
	{"cluster.advertise", "advertise", word, "the address at which the others reach this node, such as 10.0.0.5:7946", setAdvertise},
	{"cluster.join", "join", list, "addresses of other nodes, such as 10.0.0.6:7946", setJoin},
	{secretPath, "", text, "16, 24 or 32 bytes in base64", setSecret},
	{secretsPath, "", list, "a list of secrets, each 16, 24 or 32 bytes in base64: the first is used, all are accepted", setSecrets},
	{secretFilePath, "secret-file", text, "the name of a file with a secret in base64 on each line: the first is used, all are accepted", setText(func(c *Config) *string { return &c.SecretFile })},
	{"cluster.insecure", "insecure", boolean, "true or false", setBool(func(c *Config) *bool { return &c.Node.Insecure })},
	{"cluster.sync_interval", "sync-interval", duration, "a duration such as 100ms", setDuration(10*time.Millisecond, func(c *Config) *time.Duration { return &c.Node.SyncInterval })},
	{"cluster.ask_timeout", "ask-timeout", duration, "a duration such as 50ms", setDuration(time.Millisecond, func(c *Config) *time.Duration { return &c.Node.AskTimeout })},
	{"cluster.expect", "expect", integer, "the number of nodes the cluster is meant to have, such as 3", setExpect},
	{"cluster.grace", "grace", duration, "a duration such as 60s, or never", setGrace},
}, securityFields, edgeFields)

func fieldOf(fields []*field, path string) *field {
	for _, f := range fields {
		if f.path == path {
			return f
		}
	}
	return nil
}

func setText(at func(*Config) *string) func(*Config, []string) error {
	return func(c *Config, v []string) error {
		*at(c) = v[0]
		return nil
	}
}

// setName takes what the protocol accepts as the name of a node or cluster.
func setName(most int, at func(*Config) *string) func(*Config, []string) error {
	return func(c *Config, v []string) error {
		odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
		if v[0] == "" || len(v[0]) > most || strings.ContainsFunc(v[0], odd) {
			return fmt.Errorf("%.40q is no name: write 1 to %d bytes without spaces", v[0], most)
		}
		*at(c) = v[0]
		return nil
	}
}

func setAddress(at func(*Config) *string) func(*Config, []string) error {
	return func(c *Config, v []string) error {
		if err := checkAddress(v[0]); err != nil {
			return err
		}
		*at(c) = v[0]
		return nil
	}
}

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is not host:port: write an address such as 127.0.0.1:8080, or [::1]:8080 for IPv6", s)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q has no port from 0 to 65535 after the colon", s)
	}
	return nil
}

// setAdvertise takes a host alone too: the port is then that of bind.
func setAdvertise(c *Config, v []string) error {
	if strings.ContainsAny(v[0], " \t\r\n/") {
		return fmt.Errorf("%q is no address: write host or host:port", v[0])
	}
	c.Node.Advertise = v[0]
	return nil
}

func setJoin(c *Config, v []string) error {
	for _, s := range v {
		if s == "" || strings.ContainsAny(s, " \t\r\n") {
			return fmt.Errorf("%q is no address: write host:port, a host name, or dns+srv://name", s)
		}
	}
	c.Node.Join = v
	return nil
}

func setExpect(c *Config, v []string) error {
	n, err := parseWhole(v[0], 0)
	if err == nil && n > 100_000 {
		err = fmt.Errorf("%d nodes are more than any cluster has", n)
	}
	c.Node.Expect = int(n)
	return err
}

func setGrace(c *Config, v []string) error {
	if v[0] == "never" {
		c.Node.Grace = jatah.Never
		return nil
	}
	d, err := parseDuration(v[0], time.Second)
	if err != nil {
		return fmt.Errorf("%w, or never", err)
	}
	c.Node.Grace = d
	return nil
}

func setDuration(least time.Duration, at func(*Config) *time.Duration) func(*Config, []string) error {
	return func(c *Config, v []string) (err error) {
		*at(c), err = parseDuration(v[0], least)
		return err
	}
}

func setBool(at func(*Config) *bool) func(*Config, []string) error {
	return func(c *Config, v []string) (err error) {
		*at(c), err = parseBool(v[0])
		return err
	}
}
