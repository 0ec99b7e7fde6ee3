package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Limit is a definition with the names and forms of the configuration file, where rates are such as 100/min and times such as 30s. What is empty
// is left out: the default holds, or the algorithm does not use it.
type Limit struct {
	Name      string   `json:"name"`
	Rate      string   `json:"rate,omitempty"`
	Rates     []string `json:"rates,omitempty"` // instead of Rate
	Burst     *int64   `json:"burst,omitempty"`
	Algorithm string   `json:"algorithm,omitempty"`
	Mode      string   `json:"mode,omitempty"`
	Overshoot float64  `json:"overshoot,omitempty"`
	Fallback  string   `json:"fallback,omitempty"`
	DryRun    bool     `json:"dry_run,omitempty"`
	Parent    string   `json:"parent,omitempty"`

	Calendar       string `json:"calendar,omitempty"`
	Timezone       string `json:"timezone,omitempty"`
	Queue          int64  `json:"queue,omitempty"`
	MaxWait        string `json:"max_wait,omitempty"`
	BurstRate      string `json:"burst_rate,omitempty"`
	BurstThreshold string `json:"burst_threshold,omitempty"`
	BurstTime      string `json:"burst_time,omitempty"`
	MaxLog         int    `json:"max_log,omitempty"`

	Max int64  `json:"max,omitempty"` // permits, of the algorithm concurrency
	TTL string `json:"ttl,omitempty"` // of a permit

	Costs     map[string]int64 `json:"costs,omitempty"` // of routes
	Plans     map[string]Plan  `json:"plans,omitempty"`
	Overrides []Override       `json:"overrides,omitempty"`
}

// Plan is one of the amounts that keys of a limit can have.
type Plan struct {
	Rate  string   `json:"rate,omitempty"`
	Rates []string `json:"rates,omitempty"` // instead of Rate
	Burst *int64   `json:"burst,omitempty"`
}

// Override is for a key or all keys with a prefix: the name of a plan, or amounts of their own or, with neither, the limit's own.
type Override struct {
	Key      string `json:"key,omitempty"`
	Prefix   string `json:"prefix,omitempty"`
	PlanName string `json:"plan,omitempty"`
	Plan
}

// Limits are the definitions that a node knows.
func (c *Client) Limits(ctx context.Context) ([]Limit, error) {
	var b struct{ Limits []Limit }
	err := c.get(ctx, "/v1/limits", "a list of limits", &b)
	return b.Limits, err
}

// Limit is one definition; ErrUnknownLimit if there is none of this name.
func (c *Client) Limit(ctx context.Context, name string) (l Limit, err error) {
	err = c.get(ctx, limitPath(name), "the definition of a limit", &l)
	return l, err
}

// PutLimit defines a limit for the whole cluster, anew or instead of what the API defined under its name. created says that there was
// none. ErrConflict: a file defines it.
func (c *Client) PutLimit(ctx context.Context, l Limit) (created bool, err error) {
	body, err := json.Marshal(l)
	if err != nil {
		return false, fmt.Errorf("client: the limit %q: %w", l.Name, err)
	}
	a, err := c.do(ctx, &call{method: http.MethodPut, path: limitPath(l.Name), body: body, safe: true})
	return a.status == http.StatusCreated && err == nil, err
}

// DeleteLimit removes a limit that the API defined. ErrConflict: a file defines it.
func (c *Client) DeleteLimit(ctx context.Context, name string) error {
	_, err := c.do(ctx, &call{method: http.MethodDelete, path: limitPath(name), safe: true, already: ErrUnknownLimit})
	return err
}

func limitPath(name string) string { return "/v1/limits/" + url.PathEscape(name) }

// Cluster is how one node sees the cluster.
type Cluster struct {
	Node       string // that answered
	Ready      bool
	Reason     string  // why it is not ready
	K          int     // members among whom limits are divided
	Weight     float64 // the node's part of every limit
	Partitions int
	Settle     time.Duration // how long a change of membership is given to reach everybody
	Settling   time.Duration // what is left of it for the node
	Grace      time.Duration // how long a failed member's share stays reserved; Never: for ever
	Handing    int           // hand-offs in flight
	Members    []Member      // by name
}

// Member is one node in a [Cluster].
type Member struct {
	Name, Addr, HTTP, Version string
	State                     string // alive, failed or left
	Incarnation               string
	Self                      bool          // the node that answered
	Since                     time.Time     // when it failed or left; zero if it did not
	Partitions                int           // that it owns
	LendsTo, LentBy           int           // partitions of which the node that answered lends it its share, and the other way round
	Share                     float64       // the part of a limit that it lends the node that answered
	Silent                    bool          // it does not answer
	Heard                     time.Duration // since it last answered
	Reserved                  time.Duration // how long its share stays reserved though it is gone; Never: until it is forgotten
	Protocol                  int           // the newest that it and the node that answered speak; 0 for one that is gone, and from older nodes
	Secrets                   []string      // fingerprints of the secrets it accepts, the one it uses first; none: it has none, or does not tell
}

type memberBody struct {
	Name, Addr, HTTP, Version, State, Incarnation string
	Self, Silent                                  bool
	Since                                         time.Time
	Partitions                                    int
	LendsTo                                       int `json:"lends_to"`
	LentBy                                        int `json:"lent_by"`
	Share                                         float64
	HeardMS                                       int64  `json:"heard_ms"`
	ReservedMS                                    *int64 `json:"reserved_ms"`
	Protocol                                      int
	Secrets                                       []string
}

// UnmarshalJSON reads the answer to GET /v1/cluster.
func (v *Cluster) UnmarshalJSON(data []byte) error {
	var b struct {
		Node, Reason           string
		Ready                  bool
		K, Partitions, Handing int
		Weight                 float64
		SettleMS               int64  `json:"settle_ms"`
		SettlingMS             int64  `json:"settling_ms"`
		GraceMS                *int64 `json:"grace_ms"`
		Members                []memberBody
	}
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	*v = Cluster{
		Node: b.Node, Ready: b.Ready, Reason: b.Reason, K: b.K, Weight: b.Weight, Partitions: b.Partitions,
		Settle: wait(&b.SettleMS), Settling: wait(&b.SettlingMS), Grace: wait(b.GraceMS), Handing: b.Handing,
		Members: make([]Member, len(b.Members)),
	}
	for i, m := range b.Members {
		v.Members[i] = Member{
			Name: m.Name, Addr: m.Addr, HTTP: m.HTTP, Version: m.Version, State: m.State, Incarnation: m.Incarnation, Self: m.Self,
			Since: m.Since, Partitions: m.Partitions, LendsTo: m.LendsTo, LentBy: m.LentBy, Share: m.Share, Silent: m.Silent,
			Heard: wait(&m.HeardMS), Reserved: wait(m.ReservedMS), Protocol: m.Protocol, Secrets: m.Secrets,
		}
	}
	return nil
}

// UnmarshalJSON reads the answer to a take, refund or charge.
func (d *Decision) UnmarshalJSON(data []byte) error {
	var b decisionBody
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	if b.Allowed == nil {
		return fmt.Errorf("%w: it is not a decision", ErrAnswer)
	}
	*d = b.decision(b.Key)
	return nil
}

// Cluster asks the current node how it sees the cluster.
func (c *Client) Cluster(ctx context.Context) (v Cluster, err error) {
	err = c.get(ctx, "/v1/cluster", "a view of the cluster", &v)
	return v, err
}

// Forget tells the cluster that a failed member will not come back. ErrUnknownNode: there is none of that name. ErrConflict: it is alive.
func (c *Client) Forget(ctx context.Context, node string) error {
	_, err := c.do(ctx, &call{method: http.MethodPost, path: "/v1/forget?node=" + url.QueryEscape(node), safe: true, already: ErrUnknownNode})
	return err
}
