package jatah

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ward is what one examination of the whole cluster brought.
type ward struct {
	asker   string
	info    Info
	reports map[string]*checkup
	missing map[string]error

	out []Finding
}

func (w *ward) problem(check string, nodes []string, problem, advice string) {
	w.out = append(w.out, Finding{Check: check, Nodes: nodes, Problem: problem, Advice: advice})
}

func (w *ward) note(check string, nodes []string, problem, advice string) {
	w.out = append(w.out, Finding{Check: check, Note: true, Nodes: nodes, Problem: problem, Advice: advice})
}

// names of those who have said how they are, sorted.
func (w *ward) names() []string { return slices.Sorted(maps.Keys(w.reports)) }

func (w *ward) findings() []Finding {
	w.checkMembers()
	w.checkViews()
	for _, from := range w.names() {
		for _, l := range w.reports[from].Links {
			w.checkLink(from, &l)
		}
	}
	w.checkLimits()
	w.checkSettings()
	w.checkVersions()
	for _, name := range w.names() {
		w.checkClock(name, w.reports[name])
		w.checkResources(name, w.reports[name])
	}
	return ordered(w.out)
}

// checkMembers looks at those who are not there, as the asker sees it.
func (w *ward) checkMembers() {
	if !w.info.Ready {
		w.problem("members", []string{w.asker}, fmt.Sprintf("%s is not ready to decide: %s.", w.asker, w.info.Reason), "Wait, and ask again; /readyz says 200 when it is.")
	}
	there := 0
	for _, m := range w.info.Members {
		switch {
		case m.State == Alive:
			there++
		case m.State == Failed && m.Reserved != 0:
			there++
			left := "until it is forgotten"
			if m.Reserved != Never {
				left = fmt.Sprintf("for %v more", m.Reserved.Round(time.Second))
			}
			w.problem("members", []string{m.Name}, fmt.Sprintf("%s failed at %s; its share of every limit is used by nobody %s.", m.Name, m.Since.UTC().Format(time.RFC3339), left),
				fmt.Sprintf("Start it again; if it is gone for good, run: jatah forget %s.", m.Name))
		}
	}
	if missing := w.info.K - there; missing > 0 {
		w.problem("members", nil, fmt.Sprintf("Limits are divided among %d members and %d are there, so that %d of %d parts are used by nobody.", w.info.K, there, missing, w.info.K),
			"Start the others, or correct expect and join under cluster. If they run: their secret or cluster.name differs from this node's, or TCP and UDP between them are closed; their logs say which.")
	}
	for _, name := range slices.Sorted(maps.Keys(w.missing)) {
		switch err := w.missing[name]; {
		case slices.ContainsFunc(w.info.Members, func(m MemberInfo) bool { return m.Name == name && m.State != Alive }):
		case errors.Is(err, ErrUnknownTopic):
			w.note("versions", []string{name}, fmt.Sprintf("%s is of a version that cannot say how it is.", name), "Update it.")
		default:
			w.problem("members", []string{name}, fmt.Sprintf("%s counts as a member and has not answered %s, neither by packets nor over a stream.", name, w.asker),
				fmt.Sprintf("If it does not run, it will be seen as failed in some seconds. If it does, see the findings about packets and streams, and ask it: jatah doctor --addr with the address of %s.", name))
		}
	}
}

// checkViews looks for members that some see and others do not.
func (w *ward) checkViews() {
	for _, name := range w.names() {
		var blind []string
		for _, by := range w.names() {
			if _, found := slices.BinarySearch(w.reports[by].Members, name); !found {
				blind = append(blind, by)
			}
		}
		if len(blind) > 0 {
			both := append(slices.Clone(blind), name)
			slices.Sort(both)
			w.problem("views", both, fmt.Sprintf("%s does not count as a member with %s, though others see it.", name, list(blind)),
				"After a start or a mended network it passes within seconds. If it stays, open TCP and UDP between them, and see their logs.")
		}
	}
}

// link is what to as a member says of from; nil if it says nothing.
func (w *ward) link(from, to string) *linkup {
	if r := w.reports[from]; r != nil {
		if i := slices.IndexFunc(r.Links, func(l linkup) bool { return l.To == to }); i >= 0 {
			return &r.Links[i]
		}
	}
	return nil
}

// checkLink looks at the way from one member to another. Each way is its own: firewalls close one of them.
func (w *ward) checkLink(from string, l *linkup) {
	back := w.link(l.To, from)
	packets := l.Reach.Packet || back != nil && back.Heard > 0
	both := []string{from, l.To}
	slices.Sort(both)
	addr := l.Addr
	if r := w.reports[l.To]; r != nil && r.Addr != "" {
		addr = r.Addr
	}
	switch {
	case !packets && !l.Reach.Stream && back != nil && (back.Reach.Packet || l.Heard > 0):
		w.problem("packets", both, fmt.Sprintf("Nothing from %s arrives at %s; the other way it does.", from, l.To),
			fmt.Sprintf("Open UDP and TCP from %s to %s in firewalls and network policies.", w.at(from), addr))
	case !packets && !l.Reach.Stream && back == nil:
		w.problem("packets", both, fmt.Sprintf("%s gets no answer from %s, neither to packets nor over a stream, and nobody says whether they arrive.", from, l.To),
			fmt.Sprintf("Open UDP and TCP from %s to %s and back, if %s runs.", w.at(from), addr, l.To))
	case !packets && !l.Reach.Stream:
		w.problem("packets", both, fmt.Sprintf("Nothing from %s arrives at %s.", from, l.To), fmt.Sprintf("Open UDP and TCP from %s to %s.", w.at(from), addr))
	case !packets:
		w.problem("packets", both, fmt.Sprintf("UDP packets from %s do not arrive at %s; TCP does.", from, l.To),
			fmt.Sprintf("Open UDP from %s to %s in firewalls, network policies and security groups; of Kubernetes, name the port with protocol UDP too.", w.at(from), addr))
	case l.Reach.Packet && !l.Reach.Full:
		size := w.reports[from].PacketSize
		w.problem("full_packets", both, fmt.Sprintf("UDP packets of %d bytes from %s do not arrive at %s; small ones do.", size, from, l.To),
			fmt.Sprintf("The way has a smaller MTU and does not say so: give its tunnel or interface an MTU of %d or more, let ICMP \"fragmentation needed\" through, or embed with a smaller Config.PacketSize.", size+ipUDP))
	case l.Reach.Packet && !l.Reach.Stream:
		w.problem("streams", both, fmt.Sprintf("TCP from %s to %s is closed; UDP packets arrive.", from, l.To),
			fmt.Sprintf("Open TCP from %s to %s: hand-offs and long messages need it.", w.at(from), addr))
	case l.Reach.Packet && l.Silent > 0 && (back == nil || back.Reach.Packet):
		w.problem("silence", both, fmt.Sprintf("%s has answered no report of %s for %v, though packets pass both ways.", l.To, from, l.Silent.Round(100*time.Millisecond)),
			fmt.Sprintf("If it lasts, %s is overloaded or was paused: see its processor time, its limit of processor time, and jatah_pauses_total.", l.To))
	}
}

// ipUDP is what IPv6 and UDP add to a packet's payload, in bytes.
const ipUDP = 48

// at is the address of a member that has said how it is, else its name.
func (w *ward) at(name string) string {
	if r := w.reports[name]; r != nil && r.Addr != "" {
		return r.Addr
	}
	return name
}

// grouped are the nodes by what they say, in the order of their names, and "n1 and n2: a; n3: b".
func grouped(said map[string]string) (groups int, text string) {
	nodes := map[string][]string{}
	var order []string
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if s := said[name]; nodes[s] == nil {
			order = append(order, s)
		}
		nodes[said[name]] = append(nodes[said[name]], name)
	}
	var parts []string
	for _, s := range order {
		parts = append(parts, list(nodes[s])+": "+s)
	}
	return len(order), strings.Join(parts, "; ")
}

// checkLimits looks for limits that are defined differently, or not everywhere.
func (w *ward) checkLimits() {
	digests := map[string]map[string][]string{} // by limit and digest, who has it
	for _, node := range w.names() {
		for limit, d := range w.reports[node].Limits {
			if digests[limit] == nil {
				digests[limit] = map[string][]string{}
			}
			digests[limit][d] = append(digests[limit][d], node)
		}
	}
	for _, limit := range slices.Sorted(maps.Keys(digests)) {
		var who []string
		var groups []string
		for _, nodes := range digests[limit] {
			who = append(who, nodes...)
			groups = append(groups, list(nodes))
		}
		slices.Sort(who)
		slices.Sort(groups)
		if len(groups) > 1 {
			w.problem("limits", who, fmt.Sprintf("The limit %s is not defined the same on all nodes: one way on %s.", limit, strings.Join(groups, ", another on ")),
				"The owner of a key decides by its own definition, so answers depend on the key. Give all nodes the same file, or define it over the API; `jatah limits --addr` of each node shows what it has.")
		}
		if len(who) < len(w.reports) {
			var without []string
			for _, node := range w.names() {
				if _, found := slices.BinarySearch(who, node); !found {
					without = append(without, node)
				}
			}
			w.problem("limits", without, fmt.Sprintf("The limit %s is defined on %s and not on %s.", limit, list(who), list(without)),
				"Keys whose owner does not know the limit are decided by fallback. Give all nodes the same file, or define the limit over the API.")
		}
	}
}

// checkSettings compares what should be the same everywhere.
func (w *ward) checkSettings() {
	settings := map[string]map[string]string{}
	for node, r := range w.reports {
		for s, v := range r.Settings {
			if settings[s] == nil {
				settings[s] = map[string]string{}
			}
			settings[s][node] = v
		}
	}
	for _, s := range slices.Sorted(maps.Keys(settings)) {
		if groups, text := grouped(settings[s]); groups > 1 {
			w.problem("settings", slices.Sorted(maps.Keys(settings[s])), fmt.Sprintf("%s is not the same on all nodes: %s.", s, text), fmt.Sprintf("Set %s the same on all and restart them one after the other.", s))
		}
	}
}

func (w *ward) checkVersions() {
	said := map[string]string{}
	for node, r := range w.reports {
		said[node] = r.Version
		if r.Protocol > 0 {
			said[node] = fmt.Sprintf("%s, protocol %d", r.Version, r.Protocol)
		}
	}
	if groups, text := grouped(said); groups > 1 {
		w.note("versions", w.names(), fmt.Sprintf("The nodes are of different versions: %s.", text), "That is as it should be during an upgrade; finish it.")
	}
}

const (
	// clockApart is how much clocks may differ. NTP keeps them within milliseconds.
	clockApart = 500 * time.Millisecond
	// clockStepped is what NTP corrects without a step is below.
	clockStepped = time.Second
)

func (w *ward) checkClock(name string, r *checkup) {
	if off := r.ahead.Abs() - r.unsure; off > clockApart {
		word := "ahead of"
		if r.ahead < 0 {
			word = "behind"
		}
		w.problem("clock", []string{name}, fmt.Sprintf("The clock of %s is %v %s that of %s.", name, r.ahead.Abs().Round(10*time.Millisecond), word, w.asker),
			"Let NTP set the clocks of both. Only windows of the clock and the calendar depend on it: they begin that much apart.")
	}
	if r.Step.Abs() > clockStepped {
		word := "forward"
		if r.Step < 0 {
			word = "back"
		}
		w.note("clock", []string{name}, fmt.Sprintf("The clock of %s was set %s by %v since the node started, or the machine slept.", name, word, r.Step.Abs().Round(time.Millisecond)),
			"Nothing, if that was once; else look at what sets the clock.")
	}
}

// checkResources looks at what the system gives a node.
func (w *ward) checkResources(name string, r *checkup) {
	who := []string{name}
	const sysctl = "Set the sysctl net.core.rmem_max to the size that is wanted (deploy/sysctl-jatah.conf) and restart the node."
	if r.BufferGiven < r.BufferWanted {
		text := fmt.Sprintf("%s asked for a UDP receive buffer of %d KiB and got %d KiB", name, r.BufferWanted>>10, r.BufferGiven>>10)
		if r.BufferDrops > 0 {
			w.problem("buffer", who, fmt.Sprintf("%s; the kernel has dropped %d packets for it since it started.", text, r.BufferDrops), sysctl)
		} else {
			w.note("buffer", who, text+"; no packet was dropped for that yet.", sysctl+" Clusters of some nodes do without.")
		}
	} else if r.BufferDrops > 0 {
		w.note("buffer", who, fmt.Sprintf("The kernel has dropped %d packets for %s since it started: it did not read them in time.", r.BufferDrops, name), "If that grows, give it more processor time.")
	}
	if r.FilesMax > 0 && r.Files > r.FilesMax/5*4 {
		w.problem("files", who, fmt.Sprintf("%s has %d files and connections open, of at most %d.", name, r.Files, r.FilesMax), "Raise LimitNOFILE of its service (ulimit -n), or find who keeps so many connections.")
	}
	w.checkMemory(name, r)
	if r.Asks > 1000 && r.AsksResent > r.Asks/10 {
		w.note("asks", who, fmt.Sprintf("%s had to repeat %d of %d questions to owners since it started.", name, r.AsksResent, r.Asks), "Packets are lost or owners are slow: look for findings about packets and buffers, and at the processor time of all nodes.")
	}
	if r.StateFailures > 0 {
		w.problem("state", who, fmt.Sprintf("%s could not write its state %d times since it started.", name, r.StateFailures), "Its log says why; look at the space left and the permissions of state_dir, then restart it.")
	}
}

func (w *ward) checkMemory(name string, r *checkup) {
	if r.MemoryMax == 0 {
		return
	}
	who := []string{name}
	advised := fmt.Sprintf("Set GOMEMLIMIT of its environment to about nine tenths of that: %dMiB.", r.MemoryMax/10*9>>20)
	switch {
	case r.MemoryGo == 0 && r.MemoryUsed < r.MemoryMax/2:
		w.note("memory", who, fmt.Sprintf("%s may use %d MiB, after which it is killed, and Go does not know: GOMEMLIMIT is not set.", name, r.MemoryMax>>20), advised)
	case r.MemoryGo == 0:
		w.problem("memory", who, fmt.Sprintf("%s may use %d MiB, after which it is killed, and Go does not know: GOMEMLIMIT is not set.", name, r.MemoryMax>>20), advised)
	case r.MemoryGo > r.MemoryMax:
		w.problem("memory", who, fmt.Sprintf("GOMEMLIMIT of %s, %d MiB, is above what it may use before it is killed, %d MiB.", name, r.MemoryGo>>20, r.MemoryMax>>20), advised)
	}
	if r.MemoryUsed > r.MemoryMax/20*19 {
		w.problem("memory", who, fmt.Sprintf("%s uses %d MiB of the %d MiB after which it is killed.", name, r.MemoryUsed>>20, r.MemoryMax>>20), "Give it more, or bound its keys.")
	}
}
