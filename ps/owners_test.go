package ps

import (
	"fmt"
	"slices"
	"testing"
)

// TestInstallOfManyShards: what members are told of a job fits a frame, however many shards its tables have; they find out by themselves where
// these lie.
func TestInstallOfManyShards(t *testing.T) {
	p := Placement{Directory: dirName(), Servers: []Name{serverName(0), serverName(1), serverName(2)}, Lanes: 2, ShardsEach: maxShards, MinShardCells: 1}.withDefaults()
	d, err := NewDirectoryState(p, DirectoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var specs []Spec
	for i := range 300 {
		specs = append(specs, Spec{Name: fmt.Sprint("t", i), Rows: maxShards, Cols: 1})
	}
	if text := d.admit(specs, clientName(0)); text != "" {
		t.Fatal(text)
	}
	_, head, payload := coded(&install{config: d.config})
	if n, most := len(head)+len(payload), StreamOptions().MaxFrame; n > most {
		t.Errorf("an install of %d tables of %d shards has %d bytes, and a frame %d", len(specs), maxShards, n, most)
	}
	m, err := decodeInstall(head, payload)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 7, 299} {
		if got := newTable(&m.config.Tables[i], &p).owners; !slices.Equal(got, p.owners(uint32(i), maxShards)) {
			t.Errorf("table %d: its %d shards lie at %v", i, len(got), got[:8])
		}
	}
}
