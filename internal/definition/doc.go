// Package definition reads the definition of a limit from a document, whatever its syntax: the YAML of the standalone node and the
// JSON of its API have the same fields, values and messages, because both are read here.
//
// Words. A [Value] is a piece of a document after its syntax was dealt with. A field is one thing of a limit that can be set; all are in
// one table. A path names a field in a message: "limits[0].plans.pro.rate", "burst".
//
// Guarantees. Nothing is guessed: unknown fields, fields given twice and values of another kind are refused. Every mistake is told,
// not only the first, each with its value and what to do. Definitions that come out are valid by themselves; whether the parent exists
// is for others to know.
package definition
