package cluster

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// metaExtra follows meta, as an array of its fields. Fields may be added at its end without harm to older decoders if their
// number is raised, up to 15; who reads fewer or more takes what it knows.
type metaExtra struct {
	Register uint8  // registerFormat, if it has a register that can be written to
	Protocol uint8  // the newest spoken; 0: no other than meta.Protocol
	Born     uint64 // Unix milliseconds when the hash seed was made; 0: it was not made of a secret
	Seeking  bool   // while joining: takes over the hash seed of the cluster that it finds, and has none yet
	Secrets  string // fingerprints of those accepted, the one in use first
	Lonely   bool   // has made its hash seed, and had no other member since
}

const (
	leastExtra  = 5 // fields of the first version that had more than Register
	extraFields = 6
)

// append adds the fields to b. Those who speak PreviousProtocol only have the first one.
func (x *metaExtra) append(b []byte) ([]byte, error) {
	if x.Protocol == 0 {
		return append(b, arrayOf1, x.Register), nil
	}
	b = append(b, arrayOf0+extraFields, x.Register) // the first readers know an array of less than 16 whose first number is less than 128
	var w bytes.Buffer
	e := msgpack.NewEncoder(&w)
	for _, err := range []error{
		e.EncodeUint(uint64(x.Protocol)), e.EncodeUint(x.Born), e.EncodeBool(x.Seeking), e.EncodeBytes([]byte(x.Secrets)),
		e.EncodeBool(x.Lonely),
	} {
		if err != nil {
			return nil, err
		}
	}
	return append(b, w.Bytes()...), nil
}

// decodeExtra reads what an older process has not written and a newer one may have written more of.
func decodeExtra(b []byte) (x metaExtra) {
	if len(b) < 2 || b[0]&^0xf != arrayOf0 || b[0] == arrayOf0 || b[1] >= 0x80 {
		return x
	}
	x.Register = b[1]
	if b[0] < arrayOf0+leastExtra {
		return x
	}
	r := newWireReader(b[2:])
	protocol, born := wireField(r, r.d.DecodeUint8), wireField(r, r.d.DecodeUint64)
	seeking, secrets := wireField(r, r.d.DecodeBool), wireField(r, r.d.DecodeBytes)
	lonely := b[0] >= arrayOf0+extraFields && wireField(r, r.d.DecodeBool)
	if r.err != nil || protocol == 0 || len(secrets)%fingerprintSize != 0 || len(secrets) > MaxSecrets*fingerprintSize {
		return x
	}
	x.Protocol, x.Born, x.Seeking, x.Secrets, x.Lonely = protocol, born, seeking, string(secrets), lonely
	return x
}

func (m *meta) tellSecrets(secrets [][]byte) {
	if m.extra.Protocol != 0 {
		m.extra.Secrets = fingerprints(secrets)
	}
}

// newest is the highest protocol that a process speaks.
func (m *meta) newest() uint8 { return max(m.Protocol, m.extra.Protocol) }

// speaks is the protocol that two processes speak with each other; 0: they have none in common.
func (m *meta) speaks(o *meta) uint8 {
	if both := min(m.newest(), o.newest()); both >= max(m.Protocol, o.Protocol) {
		return both
	}
	return 0
}

func (m *meta) protocols() string {
	if m.newest() == m.Protocol {
		return fmt.Sprint(m.Protocol)
	}
	return fmt.Sprintf("%d to %d", m.Protocol, m.newest())
}
