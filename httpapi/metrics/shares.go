package metrics

import (
	"strconv"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jatah-io/jatah"
)

// shares are the metrics of node.Info(): who is a member, and whose share is where.
type shares struct {
	ready, weight, counted, silent, left *prometheus.Desc
	partitions, owned, loans, held       *prometheus.Desc
	handing, age                         *prometheus.Desc
}

func newShares() shares {
	def := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("jatah_"+name, help, labels, nil)
	}
	return shares{
		ready:      def("ready", "1: the node decides. 0: it has no share yet, or is leaving, as /readyz says."),
		weight:     def("weight_ratio", "The part of every limit that is this node's own; 0 until it has settled."),
		counted:    def("members_counted", "Members among whom limits are divided: also those that failed and whose share is still reserved."),
		silent:     def("members_silent", "Members that have not answered this node for three sync intervals."),
		left:       def("members_left", "Members that left in good order and are still remembered."),
		partitions: def("partitions", "Partitions of the keys."),
		owned:      def("partitions_owned", "Partitions whose keys this node owns."),
		loans: def("loans", "Partitions for which a share is on loan: this node's own to other owners (lent), and other members' to this node as owner (borrowed). "+
			"Where several members lend for one partition each counts.", "direction"),
		held: def("shares_held_ratio", "The part of every limit that this node holds as owner, on average over the partitions that it owns: its own and what is lent to it. "+
			"Below 1 some of each limit is with nobody."),
		handing: def("hand_offs_in_flight", "Hand-offs that are not acknowledged yet."),
		age:     def("member_answer_age_seconds", "Time since a member last answered this node.", "member"),
	}
}

func (s *shares) describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		s.ready, s.weight, s.counted, s.silent, s.left, s.partitions, s.owned, s.loans, s.held, s.handing, s.age,
	} {
		ch <- desc
	}
}

func (s *shares) collect(node *jatah.Node, gauge func(desc *prometheus.Desc, v float64, labels ...string)) {
	i := node.Info()
	var ready, silent, left, owned, lent, borrowed, held float64
	if i.Ready {
		ready = 1
	}
	for _, m := range i.Members {
		held += m.Share
		switch {
		case m.Self:
			owned = float64(m.Partitions)
			continue
		case m.State == jatah.Left:
			left++
		case m.State == jatah.Alive:
			gauge(s.age, m.Heard.Seconds(), labelOf(m.Name))
		}
		if m.Silent {
			silent++
		}
		lent += float64(m.LendsTo)
		borrowed += float64(m.LentBy)
	}
	gauge(s.ready, ready)
	gauge(s.weight, i.Weight)
	gauge(s.counted, float64(i.K))
	gauge(s.silent, silent)
	gauge(s.left, left)
	gauge(s.partitions, float64(i.Partitions))
	gauge(s.owned, owned)
	gauge(s.loans, lent, "lent")
	gauge(s.loans, borrowed, "borrowed")
	gauge(s.held, held)
	gauge(s.handing, float64(i.Handing))
}

// labelOf is a member's name as the value of a label, which must be UTF-8; a name need not be.
func labelOf(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}
