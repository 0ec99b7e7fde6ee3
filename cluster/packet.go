package cluster

import (
	"encoding/binary"
	"errors"
)

// A packet is the msgpack array
//
//	[version, sender name, sender incarnation, receiver incarnation, [[kind, id, body], ...]]
//
// The same form goes over streams, with one frame. It is written and read by hand, in the fixed
// sizes below, so that a packet costs no allocation and its size is known before it is built;
// any msgpack library can read it. A receiver incarnation of 0 means: whoever has the address.
//
// Newer versions may add fields at the end of both arrays, up to 15, and kinds. Readers from protocol 3 on leave fields out that they do not
// know, and frames of such kinds, which are counted; so only nodes that speak it are sent any.

// kind of a frame.
type kind uint8

const (
	kindMsg      kind = iota + 1 // to Events.Packet
	kindCall                     // to Events.Call; answered
	kindTransfer                 // to Events.Transfer; answered with an empty body when taken
	kindControl                  // to this package; answered
	kindAnswer                   // id of the request, body of the answer
	kindError                    // id of the request, body is the error's text
	kindEnd
)

const (
	packetVersion = 1

	arrayOf0  = 0x90
	arrayOf1  = 0x91
	arrayOf3  = 0x93
	arrayOf5  = 0x95
	uint64Tag = 0xcf
	str8Tag   = 0xd9
	bin32Tag  = 0xc6
	array16   = 0xdc

	// frameOverhead is what a frame adds to its body: array, kind, id (9 bytes), body header (5).
	frameOverhead = 1 + 1 + 9 + 5
	// headOverhead is the packet without sender name and frames.
	headOverhead = 1 + 1 + 2 + 9 + 9 + 3

	// maxFrames in a packet: the count has 16 bits.
	maxFrames = 1<<16 - 1
)

var errPacket = errors.New("cluster: malformed packet")

// header says who sends a packet to whom.
type header struct {
	from     string
	sender   Incarnation
	receiver Incarnation
}

// size of a packet with this header and no frames.
func (h *header) size() int { return headOverhead + len(h.from) }

// appendPacket adds a packet of frames that were encoded with appendFrame.
func appendPacket(b []byte, h *header, frames int, encoded []byte) []byte {
	b = append(b, arrayOf5, packetVersion, str8Tag, byte(len(h.from)))
	b = append(b, h.from...)
	b = append(b, uint64Tag)
	b = binary.BigEndian.AppendUint64(b, h.sender)
	b = append(b, uint64Tag)
	b = binary.BigEndian.AppendUint64(b, h.receiver)
	b = append(b, array16)
	b = binary.BigEndian.AppendUint16(b, uint16(frames))
	return append(b, encoded...)
}

// appendFrame adds one frame: len(body) + frameOverhead bytes.
func appendFrame(b []byte, k kind, id uint64, body []byte) []byte {
	b = append(b, arrayOf3, byte(k), uint64Tag)
	b = binary.BigEndian.AppendUint64(b, id)
	b = append(b, bin32Tag)
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// frame of a packet that was read. body is a part of the packet's own bytes.
type frame struct {
	kind kind
	id   uint64
	body []byte
}

// packet that was read. Its strings and bodies are parts of the bytes it was read from.
type packet struct {
	from     []byte
	sender   Incarnation
	receiver Incarnation
	frames   int // of which some may be of kinds that are not known
	rest     []byte
}

// arrayOf says whether c begins an array of less than 16 elements, and of at least n, and how many more than that.
func arrayOf(c byte, n int) (more int, ok bool) {
	more = int(c&0xf) - n
	return more, c&^0xf == arrayOf0 && more >= 0
}

// skipValues is skipValue n times.
func skipValues(b []byte, n int) ([]byte, bool) {
	for range n {
		var ok bool
		if b, ok = skipValue(b); !ok {
			return nil, false
		}
	}
	return b, true
}

// parsePacket reads the header and checks that the frames are whole, so that next cannot fail.
func parsePacket(b []byte) (packet, error) {
	var p packet
	if len(b) < headOverhead || b[1] != packetVersion || b[2] != str8Tag {
		return p, errPacket
	}
	more, ok := arrayOf(b[0], 5)
	n := int(b[3])
	if !ok || len(b) < headOverhead+n {
		return p, errPacket
	}
	p.from, b = b[4:4+n], b[4+n:]
	if b[0] != uint64Tag || b[9] != uint64Tag || b[18] != array16 {
		return p, errPacket
	}
	p.sender = binary.BigEndian.Uint64(b[1:])
	p.receiver = binary.BigEndian.Uint64(b[10:])
	p.frames = int(binary.BigEndian.Uint16(b[19:]))
	p.rest = b[21:]

	rest := p.rest
	for range p.frames {
		_, end, ok := cutFrame(rest)
		if !ok {
			return p, errPacket
		}
		rest = rest[end:]
	}
	if rest, ok = skipValues(rest, more); !ok || len(rest) != 0 {
		return p, errPacket
	}
	return p, nil
}

// cutFrame reads the frame at the beginning of b, and where it ends.
func cutFrame(b []byte) (f frame, end int, ok bool) {
	if len(b) < frameOverhead || b[1] == 0 || b[1] >= 0x80 || b[2] != uint64Tag || b[11] != bin32Tag {
		return f, 0, false
	}
	more, ok := arrayOf(b[0], 3)
	size := uint64(binary.BigEndian.Uint32(b[12:]))
	if !ok || uint64(len(b)-frameOverhead) < size {
		return f, 0, false
	}
	end = frameOverhead + int(size)
	f = frame{kind: kind(b[1]), id: binary.BigEndian.Uint64(b[3:]), body: b[frameOverhead:end:end]}
	if more == 0 {
		return f, end, true
	}
	rest, ok := skipValues(b[end:], more)
	return f, len(b) - len(rest), ok
}

// next takes the next frame off; call it frames times.
func (p *packet) next() frame {
	f, end, _ := cutFrame(p.rest)
	p.rest = p.rest[end:]
	return f
}
