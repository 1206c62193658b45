/* Exit status: whether libmruby matches the headers and options that this was compiled with. The library's first allocation is its
 * state, which must have the size in the headers, and values of every type must be the same on both sides. */
#include <mruby.h>
#include <mruby/array.h>
#include <mruby/string.h>
#include <mruby/value.h>
#include <mruby/version.h>

#include <stdlib.h>
#include <string.h>

/* Size of the first allocation. While measuring, all allocations fail. */
static size_t first;
static int is_measuring = 1;

static void *allocate(void *old, size_t size) {
  if (first == 0) first = size;
  if (is_measuring) return NULL;
  if (size == 0) {
    free(old);
    return NULL;
  }
  return realloc(old, size);
}

#if MRUBY_RELEASE_NO >= 40000
void *mrb_basic_alloc_func(void *old, size_t size) { return allocate(old, size); }

static mrb_state *begin(void) { return mrb_open(); }
#else
static void *allocate_for(mrb_state *mrb, void *old, size_t size, void *user) {
  (void)mrb;
  (void)user;
  return allocate(old, size);
}

static mrb_state *begin(void) { return mrb_open_allocf(allocate_for, NULL); }
#endif

int main(void) {
  begin();
  if (first != sizeof(mrb_state)) return 1;
  is_measuring = 0;
  mrb_state *mrb = begin();
  if (!mrb) return 1;
  const mrb_value values[] = {mrb_int_value(mrb, 1 << 29),
                              mrb_float_value(mrb, 0.5),
                              mrb_nil_value(),
                              mrb_true_value(),
                              mrb_symbol_value(mrb_intern_cstr(mrb, "a_symbol")),
                              mrb_str_new_cstr(mrb, "a string that has its own memory")};
  mrb_value all = mrb_ary_new_from_values(mrb, sizeof values / sizeof *values, values);
  mrb_value text = mrb_funcall(mrb, all, "inspect", 0);
  if (mrb->exc || !mrb_string_p(text)) return 1;
  const char *expected = "[536870912, 0.5, nil, true, :a_symbol, \"a string that has its own memory\"]";
  return (size_t)RSTRING_LEN(text) != strlen(expected) || memcmp(RSTRING_PTR(text), expected, strlen(expected)) != 0;
}
