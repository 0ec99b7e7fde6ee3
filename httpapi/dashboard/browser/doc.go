// Package browser has no code: its tests look at the dashboard in a real Chromium. It is a module of its own, so that nobody who uses a node
// downloads what drives a browser.
//
// JATAH_SCREENSHOTS=1 go test writes the pictures of docs/dashboard.md anew.
package browser
