package jatah

import "testing"

func TestDropsOfAPort(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1155: 0100007F:1F0A 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20017 2 0000000000000000 12
 1156: 00000000:1F0B 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20018 2 0000000000000000 5
 1157: 0200007F:1F0A 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 20019 2 0000000000000000 30
`
	if got := dropsIn(table, 0x1f0a); got != 42 {
		t.Errorf("%d drops, want 42", got)
	}
	if got := dropsIn("nonsense\n\n", 7946); got != 0 {
		t.Errorf("%d drops", got)
	}
	if open, most := openFiles(); open < 3 || most < open {
		t.Errorf("%d files of %d", open, most)
	}
}
