package data

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/trivium-ml/trivium"
	"github.com/trivium-ml/trivium/draw"
)

func BenchmarkCSV(b *testing.B) {
	const rows, columns = 500, 10_000
	var p []byte
	for i := range rows {
		p = strconv.AppendInt(p, int64(i%2), 10)
		for j := range columns {
			p = append(p, ',')
			p = strconv.AppendFloat(p, float64(draw.Unit(generatorSeed, 0, uint64(i*columns+j))), 'g', 8, 32)
		}
		p = append(p, '\n')
	}
	path := write(b, b.TempDir(), "wide.csv", p)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		s, err := Open(context.Background(), trivium.Data{Source: path, Scale: "standard"}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}

func BenchmarkA9a(b *testing.B) {
	path := filepath.Join("..", "..", "shared", "data", "a9a", "a9a.libsvm.gz")
	if _, err := os.Stat(path); err != nil {
		b.Skipf("%s is not beside the project", path)
	}
	for b.Loop() {
		s, err := Open(context.Background(), trivium.Data{Source: path}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
