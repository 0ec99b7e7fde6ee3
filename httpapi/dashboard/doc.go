// Package dashboard serves a page that shows a [jatah.Node] and its cluster live: members and shares, what each limit allows and refuses, who uses
// most, and what happened. All of it is in the program: the page loads nothing from elsewhere, and works without a connection to the world.
//
// # Words
//
// The page and its assets are the same for everybody and hold no data. The data are below /v1/: a stream of frames, one a second, and the history
// of one limit. A frame has the scope node or cluster. History are the last five minutes.
//
// # Guarantees
//
//   - Counters are read once a second, however many watch, and those of this node less often where reading them takes more than a twentieth of the time.
//   - Memory is bounded: five minutes of at most 1000 limits, those that were used; 32 streams at once.
//   - Other members are asked only while somebody watches the cluster, and a minute longer.
//   - What is shown of keys, limits and members is text, whatever it holds.
//
// # No guarantees
//
//   - There is no authentication: put the paths below /v1/ behind your own, as all of the API. The page sends a bearer token once it is told one.
//   - History of the cluster begins when somebody first watches it, that of the node with [New].
package dashboard
