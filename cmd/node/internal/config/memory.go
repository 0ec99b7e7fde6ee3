package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/jatah-io/jatah"
)

func setMaxKeys(c *Config, v []string) error {
	n, err := parseWhole(v[0], 1)
	if err == nil && n > math.MaxInt32 {
		err = fmt.Errorf("%d keys are more than a node can have", n)
	}
	c.Node.MaxKeys = int(n)
	return err
}

func setMaxMemory(c *Config, v []string) error {
	n, err := parseBytes(v[0])
	if err == nil && n < jatah.MinMemory {
		err = fmt.Errorf("%s is too little: write at least %dMiB", v[0], jatah.MinMemory>>20)
	}
	c.Node.MaxMemory = n
	return err
}

func setOverflow(c *Config, v []string) (err error) {
	if c.Node.Overflow, err = jatah.ParseOverflow(v[0]); err != nil {
		return fmt.Errorf("%q is none of deny, allow and shared", v[0])
	}
	return nil
}

// units of bytes, in the order in which their endings are tried.
var units = []struct {
	name string
	size float64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// parseBytes reads an amount of memory: 512MiB, 1.5GiB, 2GB, 536870912.
func parseBytes(s string) (int64, error) {
	for _, u := range units {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		digits = strings.TrimSuffix(digits, " ")
		if strings.Trim(digits, "0123456789.") != "" {
			break
		}
		n, err := strconv.ParseFloat(digits, 64)
		if n *= u.size; err != nil || n != math.Trunc(n) || n >= 1<<62 {
			break
		}
		return int64(n), nil
	}
	return 0, fmt.Errorf("%.40q is no amount of memory: write one such as 512MiB or 2GiB", s)
}
