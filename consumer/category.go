package consumer

import (
	"fmt"
	"slices"

	"github.com/mscheduler/mscheduler/internal/input"
)

// category is a registered category: its handler runs the types of which the stored type
// says that category.
type category struct {
	name   string
	handle func(typ string) (*handler, error)
}

// HandleCategory registers the handler of a category: it runs the tasks of all types whose
// document ([model.TaskType]) has this category. A change of a type's category takes effect
// within two seconds; running executions continue. If a type has its own handler, that handler
// runs. The category of a task itself does not count: a type without a document belongs to no
// category, and its tasks wait until it has one (`task explain` shows this). To select tasks by
// their own category, register their types with [Handle] and set [Config.Categories]. The
// handler finds the type in [Execution.Type] and reads the arguments with [Execution.RawArgs].
// Options apply to each of the types.
func HandleCategory(c *Consumer, name string, h Handler, opts ...HandleOption) error {
	if name == "" {
		return input.Invalid("category", "is empty")
	}
	if err := input.Label("category", name); err != nil {
		return err
	}
	if h == nil {
		return input.Invalid("handler", "of category %s is nil", name)
	}
	cat := &category{name: name, handle: func(typ string) (*handler, error) {
		return c.newHandler(typ, h, opts...)
	}}
	if _, err := cat.handle("any"); err != nil { // what is wrong with the options is said now
		return fmt.Errorf("handling category %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return fmt.Errorf("handling category %s: the consumer was already started", name)
	}
	if slices.ContainsFunc(c.categories, func(other *category) bool { return other.name == name }) {
		return input.Invalid("category", "%s already has a handler", name)
	}
	c.categories = append(c.categories, cat)
	return nil
}

// serveCategories makes the types served those that belong to the categories now.
func (c *Consumer) serveCategories() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := false
	for _, cat := range c.categories {
		codes := c.taskTypes.Of(cat.name)
		for _, code := range codes {
			h := c.handlers[code]
			if h == nil || h.category != "" && h.category != cat.name {
				made, err := cat.handle(code)
				if err != nil {
					return err
				}
				made.category, made.measured = cat.name, c.store.Measure.Types.Of(code)
				c.handlers[code], changed = made, true
			} else if h.left.Swap(false) {
				changed = true
			}
		}
		for code, h := range c.handlers {
			if h.category == cat.name && !slices.Contains(codes, code) && !h.left.Swap(true) {
				changed = true
			}
		}
	}
	if changed {
		c.wake.now()
	}
	return nil
}
