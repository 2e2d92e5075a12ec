package sim

import (
	"fmt"
	"time"
)

// nemesis causes faults, one after the other. Either processes are killed and started, or the
// database's clock is set: a process that starts within half a minute after that does not know of it, and
// takes over what others run (docs/operations.md).
func nemesis(w *world) {
	draw := newChance(w.seed, 2)
	kills := draw.of(0.7)
	started := len(w.living())
	for begun := time.Now(); time.Since(begun) < troubled; {
		time.Sleep(draw.between(500*time.Millisecond, 6*time.Second))
		living := w.living()
		victim := living[draw.below(len(living))]
		switch draw.below(10) {
		case 0, 1:
			if !kills {
				continue
			}
			w.note(victim.name, "is killed")
			w.kill(victim)
			time.Sleep(draw.between(0, 5*time.Second))
			started++
			if err := w.join(fmt.Sprintf("p%d", started)); err != nil {
				w.violated("a process does not start: %v", err)
			}
		case 2, 3: // as a process that stands still, or a network that is slow by minutes
			d := draw.between(time.Second, 20*time.Second)
			w.note(victim.name, "stands still for %v", d.Round(time.Millisecond))
			victim.silent.Store(time.Now().Add(d).UnixNano())
		case 4:
			d := draw.between(time.Second, 15*time.Second)
			w.note(victim.name, "is cut off for %v", d.Round(time.Millisecond))
			victim.proxy.Cut()
			time.AfterFunc(d, func() {
				if !victim.dead.Load() {
					victim.proxy.Mend()
				}
			})
		case 5:
			w.note(victim.name, "loses its connections")
			victim.proxy.Drop()
		case 6:
			by := draw.between(-time.Hour, time.Hour)
			w.note(victim.name, "has its clock set by %v", by.Round(time.Second))
			victim.clock.jump(by)
		case 7:
			if kills {
				continue
			}
			by := draw.between(0, 30*time.Second)
			w.note("database", "has its clock set by %v", by.Round(time.Millisecond))
			w.db.jump(by)
		case 9:
			d := draw.between(time.Second, 8*time.Second)
			w.note("database", "has no space on its disk for %v", d.Round(time.Millisecond))
			w.db.full.Store(time.Now().Add(d).UnixNano())
		case 8:
			d := draw.between(0, 8*time.Second)
			w.note("database", "is down for %v", d.Round(time.Millisecond))
			w.restarts(func() error {
				time.Sleep(d)
				return nil
			})
		}
	}
}

// kill ends a process for good.
func (w *world) kill(p *process) {
	p.kill()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.procs {
		if other == p {
			w.procs = append(w.procs[:i], w.procs[i+1:]...)
			break
		}
	}
	w.gone = append(w.gone, p)
}
