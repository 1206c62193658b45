/* Says by its exit status whether libmruby was built with the options that this was compiled with: the first thing that
 * the library asks memory for is its state, and that must be as large as the headers say. */
#include <mruby.h>
#include <stdlib.h>

static size_t first;

static void *note(mrb_state *mrb, void *old, size_t size, void *user) {
  (void)mrb;
  (void)user;
  if (first == 0 && size > 0) first = size;
  /* Nothing else has to work. */
  (void)old;
  return NULL;
}

int main(void) {
  mrb_open_allocf(note, NULL);
  return first == sizeof(mrb_state) ? 0 : 1;
}
