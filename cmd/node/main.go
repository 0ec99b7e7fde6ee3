package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
	_ "time/tzdata" // calendars need zones, also in a container without any files

	"github.com/jatah-io/jatah/internal/definition"
)

const (
	exitFailed = 1
	exitUsage  = 2
	exitDenied = 3
)

// errDenied makes take end with exitDenied; what there is to say has been said.
var errDenied = errors.New("denied")

// usageError is a command line that cannot be understood.
type usageError struct {
	command string
	err     error
}

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// console is what a command talks to.
type console struct {
	out, err io.Writer
	environ  []string
}

// command is one word after the program's name.
type command struct {
	name    string
	args    string // after the flags, for the usage line
	summary string
	run     func(ctx context.Context, c console, args []string) error
}

func commands() []command {
	return []command{
		{"serve", "", "run a node", serve},
		{"check", "FILE", "check a configuration file", check},
		{"take", "LIMIT KEY", "ask a node for a decision", take},
		{"cluster", "", "show the members as a node sees them", cluster},
		{"top", "", "show which keys use most and which are refused most", top},
		{"limits", "", "show the limits of a node, or change one on all nodes", limits},
		{"doctor", "", "look for what is wrong with a cluster, a configuration or this machine", doctor},
		{"health", "", "ask whether a node is ready: for containers", health},
		{"forget", "NODE", "stop waiting for a member that will not come back", forget},
		{"key", "new | list | rotate", "make and change the secrets that nodes encrypt with", key},
		{"math", "", "work out bursts, waits and what to ask of a limit", work},
		{"demo", "", "three nodes under load on this machine, one of them killed", runDemo},
		{"version", "", "print the version", version},
	}
}

func main() {
	os.Exit(run(signals(), console{os.Stdout, os.Stderr, os.Environ()}, os.Args[1:]))
}

// signals is a context that ends with the first SIGINT or SIGTERM. A second
// one ends the process at once: whoever sends it is done waiting.
func signals() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan os.Signal, 2)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-received
		cancel()
		<-received
		os.Exit(exitFailed)
	}()
	return ctx
}

// run does one command and returns the exit code.
func run(ctx context.Context, c console, args []string) int {
	if len(args) == 0 {
		help(c.err)
		return exitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) == 1 {
			help(c.out)
			return 0
		}
		args = []string{args[1], "-h"}
	case "--version", "-version":
		args[0] = "version"
	}
	for _, cmd := range commands() {
		if cmd.name == args[0] {
			return report(c.err, cmd.run(ctx, c, args[1:]))
		}
	}
	fmt.Fprintf(c.err, "jatah: there is no command %q%s\n", args[0], cmp.Or(meant(args[0], commandNames()), "; `jatah help` lists them"))
	return exitUsage
}

func commandNames() (names []string) {
	for _, cmd := range commands() {
		names = append(names, cmd.name)
	}
	return names
}

// meant asks about the known word that is nearly the given one; "" if none is.
func meant(word string, known []string) string {
	if near := definition.Nearest(word, known); near != "" {
		return ": did you mean " + near + "?"
	}
	return ""
}

// report prints an error and returns the exit code for it.
func report(w io.Writer, err error) int {
	var usage usageError
	var blind cannotRun
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errDenied):
		return exitDenied
	case errors.Is(err, errFindings):
		return exitFailed
	case errors.As(err, &blind):
		fmt.Fprintf(w, "jatah: %v\n", err)
		return exitUsage
	case errors.As(err, &usage):
		fmt.Fprintf(w, "jatah %s: %v\nsee: jatah %s -h\n", usage.command, err, usage.command)
		return exitUsage
	}
	// A configuration error has a line for each mistake, which stands alone so
	// that editors find the place in it.
	if text := err.Error(); strings.Contains(text, "\n") {
		fmt.Fprintln(w, text)
	} else {
		fmt.Fprintf(w, "jatah: %s\n", text)
	}
	return exitFailed
}

func help(w io.Writer) {
	fmt.Fprint(w, "Jatah limits rates for many nodes as one.\n\nusage: jatah COMMAND [flags] [arguments]\n\n")
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, cmd := range commands() {
		fmt.Fprintf(tab, "  %s\t%s\n", strings.TrimSpace(cmd.name+" "+cmd.args), cmd.summary)
	}
	fmt.Fprint(tab, "  help [COMMAND]\twhat a command does and its flags\n")
	tab.Flush()
	fmt.Fprint(w, "\nnew here? see it work:  jatah demo\nthen run one node:      jatah serve --limit api=100/min,burst=20\n")
}

// flagSet is a set of flags whose help, with -h, says what the command does.
type flagSet struct {
	*flag.FlagSet
	cmd  command
	text string

	parsed []func(environ []string) // called when the flags are known
}

func newFlags(name, text string) *flagSet {
	f := &flagSet{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), text: text}
	for _, cmd := range commands() {
		if cmd.name == name {
			f.cmd = cmd
		}
	}
	f.SetOutput(io.Discard)
	return f
}

// parse reads the flags and checks the number of arguments after them.
func (f *flagSet) parse(c console, args []string, arguments int) error {
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		f.help(c.out)
		return err
	case err != nil:
		return usageError{f.cmd.name, f.plain(err)}
	}
	for _, done := range f.parsed {
		done(c.environ)
	}
	if f.NArg() == arguments {
		return nil
	}
	for _, arg := range f.Args() {
		if strings.HasPrefix(arg, "-") {
			return usageError{f.cmd.name, fmt.Errorf("%s stands after an argument: flags come first", arg)}
		}
	}
	if arguments == 0 {
		hint := ""
		if f.Lookup("config") != nil {
			hint = "; a file of configuration is named by --config"
		}
		return usageError{f.cmd.name, fmt.Errorf("takes no arguments, was given %q%s", f.Args(), hint)}
	}
	if strings.Contains(f.cmd.args, " | ") {
		return usageError{f.cmd.name, fmt.Errorf("needs one of: %s", f.cmd.args)}
	}
	return usageError{f.cmd.name, fmt.Errorf("needs exactly: %s", f.cmd.args)}
}

// plain says in the words of this program what package flag found.
func (f *flagSet) plain(err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		var known []string
		f.VisitAll(func(one *flag.Flag) { known = append(known, "--"+one.Name) })
		name = "--" + strings.TrimPrefix(name, "-")
		return fmt.Errorf("there is no flag %s%s", name, meant(name, known))
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fmt.Errorf("--%s stands at the end, and needs a value after it", strings.TrimPrefix(name, "-"))
	}
	// invalid value "x" for flag -cost: parse error
	quoted, rest, ok := strings.Cut(strings.TrimPrefix(text, "invalid value "), " for flag -")
	name, reason, named := strings.Cut(rest, ": ")
	one := f.Lookup(name)
	if !ok || !named || one == nil {
		return err
	}
	if get, ok := one.Value.(flag.Getter); ok {
		switch get.Get().(type) {
		case int, int64:
			reason = "write a whole number, such as 10"
		case time.Duration:
			reason = "write a number with its unit, such as 500ms, 2s or 1m"
		}
	}
	if name == "log-level" {
		reason = "write debug, info, warn or error"
	}
	return fmt.Errorf("--%s: %s will not do: %s", name, quoted, reason)
}

func (f *flagSet) help(w io.Writer) {
	line := "usage: jatah " + f.cmd.name
	flags := 0
	f.VisitAll(func(*flag.Flag) { flags++ })
	if flags > 0 {
		line += " [flags]"
	}
	if f.cmd.args != "" {
		line += " " + f.cmd.args
	}
	fmt.Fprintf(w, "%s\n\n%s\n", line, f.text)
	if flags == 0 {
		return
	}
	fmt.Fprintln(w)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	f.VisitAll(func(one *flag.Flag) {
		name, usage := flag.UnquoteUsage(one)
		// Where the sentence has no place for the name of its value, that stands behind it.
		usage = strings.TrimSuffix(usage, "; "+name)
		if name != "" {
			name = " " + strings.ToUpper(name)
		}
		if one.DefValue != "" && one.DefValue != "false" && one.DefValue != "0" && one.DefValue != "0s" {
			usage += fmt.Sprintf(" (default %s)", one.DefValue)
		}
		fmt.Fprintf(tab, "  --%s%s\t%s\n", one.Name, name, usage)
	})
	tab.Flush()
}
