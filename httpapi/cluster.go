package httpapi

import (
	"net/http"
	"time"

	"github.com/jatah-io/jatah"
)

type clusterBody struct {
	Node       string       `json:"node"`
	Ready      bool         `json:"ready"`
	Reason     string       `json:"reason,omitempty"` // why it is not ready
	K          int          `json:"k"`                // members among whom limits are divided
	Weight     float64      `json:"weight"`           // this node's part of every limit
	Partitions int          `json:"partitions"`
	SettleMS   int64        `json:"settle_ms"`
	SettlingMS int64        `json:"settling_ms"` // until this node has its part
	GraceMS    *int64       `json:"grace_ms"`    // null: never
	Handing    int          `json:"handing"`     // hand-offs in flight
	Members    []memberBody `json:"members"`
}

type memberBody struct {
	Name        string   `json:"name"`
	Addr        string   `json:"addr"`
	HTTP        string   `json:"http"`
	Version     string   `json:"version"`
	State       string   `json:"state"`
	Incarnation string   `json:"incarnation"`
	Self        bool     `json:"self"`
	Since       string   `json:"since,omitempty"` // when it failed or left
	Partitions  int      `json:"partitions"`      // that it owns
	LendsTo     int      `json:"lends_to"`        // partitions of which the answering node lends it its share
	LentBy      int      `json:"lent_by"`         // partitions of which it lends the answering node its share
	Share       float64  `json:"share"`           // what it lends the answering node, as a part of a limit
	Silent      bool     `json:"silent"`
	HeardMS     int64    `json:"heard_ms"`           // since it last answered
	ReservedMS  *int64   `json:"reserved_ms"`        // how long its share stays reserved though it is gone; null: until it is forgotten
	Protocol    int      `json:"protocol,omitempty"` // the newest that it and the answering node speak
	Secrets     []string `json:"secrets,omitempty"`  // fingerprints of those it accepts, the one it uses first
}

// cluster shows the members and shares as this node sees them.
func (h *Handler) cluster(w http.ResponseWriter, r *http.Request) {
	if _, p := readQuery(r); p != nil {
		writeProblem(w, p)
		return
	}
	writeJSON(w, clusterOf(h.node.Info()))
}

func clusterOf(in jatah.Info) clusterBody {
	c := clusterBody{
		Node: in.Node, Ready: in.Ready, Reason: in.Reason, K: in.K, Weight: finite(in.Weight), Partitions: in.Partitions,
		SettleMS: ceilDiv(in.Settle, time.Millisecond), SettlingMS: ceilDiv(in.Settling, time.Millisecond),
		GraceMS: millis(in.Grace), Handing: in.Handing, Members: make([]memberBody, len(in.Members)),
	}
	for i, m := range in.Members {
		c.Members[i] = memberBody{
			Name: m.Name, Addr: m.Addr, HTTP: m.HTTP, Version: m.Version, State: m.State, Incarnation: m.Incarnation, Self: m.Self,
			Partitions: m.Partitions, LendsTo: m.LendsTo, LentBy: m.LentBy, Share: finite(m.Share), Silent: m.Silent,
			HeardMS: ceilDiv(m.Heard, time.Millisecond), ReservedMS: millis(m.Reserved), Protocol: m.Protocol, Secrets: m.Secrets,
		}
		if !m.Since.IsZero() {
			c.Members[i].Since = m.Since.UTC().Format(time.RFC3339)
		}
	}
	return c
}
