/* The inside of a VM: what the parts of the shim share. None of this is for Rust; that is in shim.h.
 *
 * memory.c limits, tape.c carries values, methods.c is what Ruby calls, source.c reads code, tasks.c runs steps, shapes.c
 * remembers envs, stop.c ends what does not end, vm.c opens and closes.
 */
#ifndef FIREBRICK_VM_H
#define FIREBRICK_VM_H

#include "shapes.h"
#include "shim.h"

#include <mruby.h>
#include <mruby/array.h>
#include <mruby/error.h>
#include <mruby/hash.h>
#include <mruby/proc.h>
#include <mruby/string.h>
#include <mruby/value.h>
#include <mruby/variable.h>
#include <mruby/version.h>

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#if MRUBY_RELEASE_NO < 30100 || MRUBY_RELEASE_NO >= 40100
#error "mruby 3.1 to 4.0 is needed"
#endif

typedef struct {
  uint8_t *data;
  size_t length, capacity;
} buffer;

/* Before each piece of memory that mruby has, so that a VM that cannot be closed any more can still be given back. */
typedef struct block {
  struct block *next, *previous;
  size_t size;         /* with this head; keeps what follows aligned for anything, as the padding does */
  size_t padding;
} block;

struct fb_vm {
  mrb_state *mrb;
  block blocks;           /* head of the ring of all memory */
  pthread_t thread;       /* whose VM it is */
  atomic_uint serial;     /* of the step that runs, or ran last */
  atomic_uint unwanted;   /* the step that is to be stopped */
  sigjmp_buf leave;       /* out of the step that runs */
  fb_config config;
  size_t first_allocation;
  size_t heap;         /* bytes that mruby holds */
  size_t ceiling;      /* what `heap` may reach during this resume */
  atomic_int interrupted; /* how many allocations are still to fail; with the hook: whether to raise */
  buffer out;
  mrb_value roots;     /* one registered Array: fibers, interned Strings, what else must stay */
  mrb_value fibers;    /* slot => Fiber */
  mrb_value interned;
  mrb_value marker;    /* what a task yields when it waits */
  mrb_value module;    /* Rt */
  mrb_value apps;      /* number => handler */
  mrb_value request;   /* handler, env and kind of a request, on their way into its task */
  mrb_value template;  /* what every env begins as; nil before Rt.env */
  struct RClass *interrupted_class;
  shapes shapes;       /* of envs */
};

/* memory.c: opens a state whose memory is the VM's; a task may take what its limits leave it, the driver what it needs. */
mrb_state *memory_open(fb_vm *vm);
void memory_watch(fb_vm *vm); /* by the hook, if the library has one */
void memory_for_task(fb_vm *vm);
void memory_for_driver(fb_vm *vm);
void memory_discard(fb_vm *vm);

/* tape.c: writes to a buffer and reads from a tape. All of it raises when it cannot. */
void tape_grow(mrb_state *mrb, buffer *to, size_t length);
void tape_value(mrb_state *mrb, buffer *to, mrb_value value, int depth);
mrb_value tape_take(mrb_state *mrb, fb_bytes bytes);

/* What each response is written with stays in one piece with its writer. */
static inline void tape_put(mrb_state *mrb, buffer *to, const void *data, size_t length) {
  if (to->capacity - to->length < length) tape_grow(mrb, to, length);
  if (length) memcpy(to->data + to->length, data, length);
  to->length += length;
}

static inline void tape_tag(mrb_state *mrb, buffer *to, char tag) { tape_put(mrb, to, &tag, 1); }

static inline void tape_counted(mrb_state *mrb, buffer *to, char tag, size_t count) {
  if (count > UINT32_MAX) mrb_raise(mrb, E_ARGUMENT_ERROR, "value is too large");
  uint32_t narrow = (uint32_t)count;
  tape_tag(mrb, to, tag);
  tape_put(mrb, to, &narrow, sizeof narrow);
}

static inline void tape_text(mrb_state *mrb, buffer *to, char tag, const char *text, size_t length) {
  tape_counted(mrb, to, tag, length);
  tape_put(mrb, to, text, length);
}

/* methods.c */
void methods_define(mrb_state *mrb, struct RClass *rt);

/* vm.c: runs `body` protected, with the arena as it was before; what it raises is described in `out`. */
int vm_enter(fb_vm *vm, mrb_protect_error_func *body, void *user, mrb_value *result);
mrb_value vm_interned(mrb_state *mrb, fb_vm *vm, uint32_t number);

#endif
