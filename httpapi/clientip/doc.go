// Package clientip says who sent an HTTP request when there are proxies in between.
//
// # Words
//
//   - peer: who opened the connection, as in http.Request.RemoteAddr.
//   - trusted proxy: an address of Config.TrustedProxies. What such a peer says about others is believed.
//   - hop: one address on the way from the client to here, as a header tells it.
//   - walk: reading the hops from the right, which is from here towards the client, as far as they can be believed.
//   - key: what is counted for an address: IPv4 as it is, IPv6 by its network, because one line has at least a /64.
//
// # How a client is found
//
// A peer that is not trusted is the client, whatever its headers say. If the peer is trusted, the one header that
// Config.Header names decides and all others are ignored:
//
//   - X-Forwarded-For and Forwarded (RFC 7239) are lists. All lines are read as one list, in order, from the right.
//     The first address that is not a trusted proxy is the client; if all are trusted, it is the left-most. An entry
//     that names no address (unreadable, hidden, "unknown", an element without for=) ends the walk: then the
//     hop to its right counts, or the peer. Empty entries are skipped.
//   - Any other header holds one address. Several lines, a list or something unreadable count as nothing: the peer is
//     the client.
//
// Addresses may have a port, brackets and a zone, which are dropped; IPv4 written as IPv6 (::ffff:192.0.2.1) is IPv4.
//
// # Guarantees
//
//   - Nobody is trusted by default, and then no header is looked at.
//   - While every trusted proxy appends the address it got the request from, nothing that a client
//     writes changes the answer: what stands left of the first untrusted hop is not even read. That holds for bytes of any
//     kind. An open quote that a client leaves in Forwarded does not swallow what the proxy appends, because
//     elements are found from their end.
//   - The walk takes time in proportion to the bytes that it reads and ends after 64 trusted hops. It allocates nothing, but
//     for an entry that names no address or is written with escapes.
//   - Two addresses share a key only if they are the same, or are IPv6 and of the same network. All requests without a
//     readable peer share one key, [Unknown].
//   - Headers are never logged, only the peer's address and names of headers. At most three lines are logged per Resolver.
//
// # Not guaranteed
//
//   - A proxy that passes on what the client sent, without appending to it or overwriting it, lets clients choose their
//     address. With a single-address header (X-Real-IP, CF-Connecting-IP) the proxy must overwrite or remove it in every
//     request: try it with curl -H 'X-Real-IP: 192.0.2.1'. nginx sends X-Real-IP on unchanged unless
//     proxy_set_header names it.
//   - A trusted address that others can use as well (a whole cloud's range, "private" in a network with tenants) is
//     believed for them too. CF-Connecting-IP is safe only if requests reach the server through the CDN alone.
//   - Where the proxy forgets the header the proxy is the client, and all behind it share a key. A client can make some proxies drop
//     a header by naming it in Connection; it gains the key of the proxy, not of another client.
//   - Many visitors may have one address (an office, a mobile network) and one visitor may have many addresses. Count those who are
//     known by their account.
//   - Where a translator turns IPv4 visitors into IPv6 addresses, such as 64:ff9b::192.0.2.1, all of them are
//     in one /64: set Config.IPv6Prefix to 128 there.
//
// The package imports only the standard library.
package clientip
