// Package topk finds the keys that count most, in memory that does not grow with the number of keys.
//
// [Sketch] is the Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient computation of frequent and top-k elements in
// data streams", ICDT 2005), for counts of any size: it keeps k keys, and a new key takes the place of the smallest one
// and inherits its count as what it may be wrong by. So of each key that is kept
//
//	least <= what it truly counts <= most
//
// and a key that is not kept counts at most [Sketch.Floor], which is at most the sum of all counts divided by k.
//
// [Recent] is what counts in the last minute: two sketches, of this minute and the one before. It notes every count while
// there are few, and one in N, N times as high, when there are many, so that what it costs is bounded.
//
// [Summary] is what a sketch says, to be sent elsewhere; [Merge] adds the summaries of several nodes up, bounds included.
package topk
