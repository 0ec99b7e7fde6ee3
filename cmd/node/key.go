package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/jatah-io/jatah"
	"github.com/jatah-io/jatah/cmd/node/internal/config"
	"github.com/jatah-io/jatah/httpapi/client"
)

const keyHelp = "Makes and changes the secrets that nodes encrypt their traffic with.\n\n" +
	"  jatah key new                       prints a new one\n" +
	"  jatah key list [--file F] [--addr A]    which secrets a file has, and which node uses which, by fingerprints\n" +
	"  jatah key rotate --file F [--addr A]    the next step of changing the secret in a file\n\n" +
	"A change takes three steps, each on the file of every node before the next one: the new secret is added behind\n" +
	"the old one, then comes first, then the old one goes. Nodes that run notice that their file has changed. With --addr\n" +
	"(or JATAH_ADDR) nothing is done while some member would be cut off. Make each step on one machine, and copy the file to the others."

// keyFlags are those of all three.
type keyFlags struct {
	node api
	file string
}

func key(ctx context.Context, c console, args []string) error {
	flags := newFlags("key", keyHelp)
	var f keyFlags
	f.node.register(flags)
	flags.StringVar(&f.file, "file", "", "`name` of a file of secrets, as for secret_file")
	var word string
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		word = args[0]
		if err := flags.parse(c, args[1:], 0); err != nil {
			return err
		}
	} else {
		if err := flags.parse(c, args, 1); err != nil {
			return err
		}
		word = flags.Arg(0)
	}
	switch word {
	case "new":
		fmt.Fprintln(c.out, newSecret())
		return nil
	case "list":
		return listKeys(ctx, c.out, f)
	case "rotate":
		return rotateKey(ctx, c.out, f)
	}
	return usageError{"key", fmt.Errorf("%q is none of: new, list, rotate", word)}
}

func newSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

// members are those that are alive, as a node sees them.
func (f *keyFlags) members(ctx context.Context) (alive []client.Member, err error) {
	_, answer, err := f.node.call(ctx, http.MethodGet, "/v1/cluster", nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var v client.Cluster
	if err := json.Unmarshal(answer, &v); err != nil {
		return nil, fmt.Errorf("the answer of %s is not a view of the cluster: %w", f.node.base, err)
	}
	for _, m := range v.Members {
		switch m.State {
		case jatah.Alive:
			alive = append(alive, m)
		case jatah.Failed:
			// It may come back with what it had.
			return nil, fmt.Errorf("%s has failed: bring it back, or say `jatah forget %s` if it is gone for good", m.Name, m.Name)
		}
	}
	return alive, nil
}

func listKeys(ctx context.Context, w io.Writer, f keyFlags) error {
	if f.file == "" && !f.node.given {
		return usageError{"key", errors.New("needs --file, --addr (or JATAH_ADDR), or both")}
	}
	if f.file != "" {
		s, err := readSecrets(f.file)
		if err != nil {
			return err
		}
		for i, fp := range s.fingerprints() {
			word := "accepted"
			if i == 0 {
				word = "used"
			}
			fmt.Fprintf(w, "%s: %s %s\n", f.file, fp, word)
		}
	}
	if !f.node.given {
		return nil
	}
	ms, err := f.members(ctx)
	if err != nil {
		return err
	}
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "NODE\tUSES\tACCEPTS ALSO")
	for _, m := range ms {
		uses, also := "-", "-"
		if len(m.Secrets) > 0 {
			uses = m.Secrets[0]
		}
		if len(m.Secrets) > 1 {
			also = strings.Join(m.Secrets[1:], " ")
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\n", m.Name, uses, also)
	}
	return tab.Flush()
}

// secretsFile is a file of secrets, line by line, so that comments stay.
type secretsFile struct {
	path    string
	secrets [][]byte
	lines   []string // with their ends
	at      []int    // of these, those with a secret
}

func readSecrets(path string) (*secretsFile, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &secretsFile{path: path}
	if s.secrets, err = config.ParseSecrets(data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for line := range strings.Lines(string(data)) {
		if !strings.HasSuffix(line, "\n") {
			line += "\n"
		}
		text, _, _ := strings.Cut(line, "#")
		if strings.TrimSpace(text) != "" {
			s.at = append(s.at, len(s.lines))
		}
		s.lines = append(s.lines, line)
	}
	return s, nil
}

func (s *secretsFile) fingerprints() (list []string) {
	for _, secret := range s.secrets {
		list = append(list, jatah.Fingerprint(secret))
	}
	return list
}

// write replaces the file, whole or not at all, for nobody but its owner to read.
func (s *secretsFile) write(lines []string) error {
	// A link is kept, and what it leads to replaced.
	path, err := filepath.EvalSymlinks(s.path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, ""))
	if err = errors.Join(err, ownAs(f, path), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// rotateKey makes the step that follows from what the file has: one secret: another is added. Two, the members use the first and the second was
// added last: it comes first. And so on. Which of two is the new one only the order of the steps tells, so the lines are marked.
func rotateKey(ctx context.Context, w io.Writer, f keyFlags) error {
	if f.file == "" {
		return usageError{"key", errors.New("rotate needs --file: that of secret_file")}
	}
	s, err := readSecrets(f.file)
	if err != nil {
		return err
	}
	if len(s.secrets) > 2 {
		return fmt.Errorf("%s has %d secrets: this changes one for another; remove those by hand that no node uses (`jatah key list --addr` tells)", f.file, len(s.secrets))
	}
	var ms []client.Member
	if f.node.given {
		if ms, err = f.members(ctx); err != nil {
			return err
		}
		if err := s.everywhere(ms); err != nil {
			return err
		}
	}
	lines := slices.Clone(s.lines)
	fps := s.fingerprints()
	var step string // told when it is done
	switch {
	case len(s.secrets) == 1:
		added := newSecret()
		secret, _ := base64.StdEncoding.DecodeString(added) // it was made a moment ago
		lines = append(lines, added+" "+markNew+"\n")
		step = fmt.Sprintf("step 1 of 3: %s is accepted besides %s.\n", jatah.Fingerprint(secret), fps[0])
	case strings.Contains(s.lines[s.at[1]], markNew):
		first, second := s.at[0], s.at[1]
		lines[first], lines[second] = strings.Replace(lines[second], " "+markNew, "", 1), strings.TrimRight(lines[first], "\r\n")+" "+markOld+"\n"
		step = fmt.Sprintf("step 2 of 3: %s is used, %s still accepted.\n", fps[1], fps[0])
	case strings.Contains(s.lines[s.at[1]], markOld):
		lines = slices.Delete(lines, s.at[1], s.at[1]+1)
		step = fmt.Sprintf("step 3 of 3: %s is gone, %s alone is used and accepted.\n", fps[1], fps[0])
	default:
		return fmt.Errorf("%s has two secrets and no mark which of them is new: write %q behind the second one if it is to come first, or %q if it is to go", f.file, markNew, markOld)
	}
	if err := s.write(lines); err != nil {
		return err
	}
	fmt.Fprint(w, step)
	next := "run `jatah key rotate` there again for the next step"
	if len(s.secrets) == 2 && strings.Contains(s.lines[s.at[1]], markOld) {
		next = "the change is complete"
	}
	fmt.Fprintf(w, "Now copy %s to every other node, wait until `jatah key list --addr` shows it on all of them, and %s.\n", f.file, next)
	return nil
}

const (
	markNew = "# new: is used after the next step"
	markOld = "# old: goes with the next step"
)

// everywhere is an error if the last step has not reached some member, which the next one would cut off.
func (s *secretsFile) everywhere(ms []client.Member) error {
	want := s.fingerprints()
	var late []string
	for _, m := range ms {
		switch {
		case len(m.Secrets) == 0:
			return fmt.Errorf("%s does not tell which secrets it has: it runs without one, or is of an older version: check its file, and leave out --addr", m.Name)
		case !slices.Equal(m.Secrets, want):
			late = append(late, fmt.Sprintf("%s %s", m.Name, whatIsMissing(m.Secrets, want)))
		}
	}
	if len(late) > 0 {
		return fmt.Errorf("%s; nothing was changed. Copy %s there first, and see that the node reads it (kill -HUP; a restart where systemd hands it over)", strings.Join(late, ", "), s.path)
	}
	return nil
}

func whatIsMissing(has, want []string) string {
	for _, fp := range want {
		if !slices.Contains(has, fp) {
			return "does not accept " + fp + " yet"
		}
	}
	if has[0] != want[0] {
		return "does not use " + want[0] + " yet"
	}
	return "accepts others as well: " + strings.Join(has, " ")
}
