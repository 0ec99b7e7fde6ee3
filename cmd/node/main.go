package main

import (
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
	_ "time/tzdata" // calendars need zones, also in a container without any files
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
	fmt.Fprintf(c.err, "jatah: there is no command %q; `jatah help` lists them\n", args[0])
	return exitUsage
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
		return usageError{f.cmd.name, err}
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
		return usageError{f.cmd.name, fmt.Errorf("takes no arguments, was given %q", f.Args())}
	}
	return usageError{f.cmd.name, fmt.Errorf("needs exactly: %s", f.cmd.args)}
}

func (f *flagSet) help(w io.Writer) {
	line := "usage: jatah " + f.cmd.name + " [flags]"
	if f.cmd.args != "" {
		line += " " + f.cmd.args
	}
	fmt.Fprintf(w, "%s\n\n%s\n\n", line, f.text)
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	f.VisitAll(func(one *flag.Flag) {
		name, usage := flag.UnquoteUsage(one)
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
