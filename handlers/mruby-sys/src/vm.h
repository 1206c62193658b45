/* What the parts of the shim share. Rust sees shim.h only.
 *
 * memory.c limits memory and time, tape.c converts values, methods.c has the methods of Rt, fibers.c those of Fiber, source.c
 * evaluates code, tasks.c runs steps, shapes.c caches envs, stop.c stops endless steps, vm.c opens and closes VMs.
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

/* Why a step was left: the values of siglongjmp. */
enum { LEFT_FOR_TIME = 1, LEFT_FOR_MEMORY = 2 };

/* Value of `interrupted`: each instruction of the step raises, so that no `rescue` or `ensure` keeps it running. */
enum { UNTIL_IT_ENDS = -1 };

/* Methods that compile: eval and the like. */
enum { COMPILERS = 4 };

typedef struct {
  uint8_t *data;
  size_t length, capacity;
} buffer;

/* Header of each block of memory that mruby has, so that a broken VM can be freed without mruby. */
typedef struct block {
  struct block *next, *previous;
  size_t size;         /* with this header; header and padding keep the block aligned for any type */
  size_t padding;
} block;

struct fb_vm {
  mrb_state *mrb;
  block blocks;           /* head of the ring of all blocks */
  pthread_t thread;       /* that opened the VM */
  atomic_uint serial;     /* of the current or last step */
  atomic_uint unwanted;   /* the step that is to be stopped */
  sigjmp_buf leave;       /* out of the current step */
  fb_config config;
  size_t first_allocation;
  size_t heap;         /* bytes that mruby holds */
  size_t ceiling;      /* most that `heap` may reach during this step; with what cannot be refused, `utmost` */
  size_t utmost;
  size_t reserved;     /* bytes of `memory_reserve` that have not been taken */
  size_t first_piece;  /* size of the large structure that was granted last */
  unsigned refused;    /* jobs, because the heap was full */
  int is_ending;       /* the task's exception is being reported: it is not interrupted any more */
  atomic_int interrupted; /* number of allocations that are still to fail; with the hook: whether to raise, once or UNTIL_IT_ENDS */
  buffer out;
  struct mrb_context *task; /* that runs the current step */
  int has_plain;       /* `out` is a response of Rt.plain */
  int waits;           /* `out` is a wait of Rt.wait */
  struct RProc *work;  /* the code of all tasks; NULL before Rt.seal */
  const struct RProc *resume; /* Fiber#resume */
  mrb_func_t fiber_initialize, fiber_resume, compilers[COMPILERS]; /* mruby's own */
  mrb_value roots;     /* a registered Array of everything the collector must keep */
  mrb_value fibers;    /* slot => Fiber */
  mrb_value interned;
  mrb_value marker;    /* yielded by a task that waits */
  mrb_value module;    /* Rt */
  mrb_value apps;      /* number => handler */
  mrb_value request;   /* handler, env and kind of a request that is passed to its task */
  mrb_value template;  /* every env starts as a copy of it; nil before Rt.env */
  struct RClass *interrupted_class;
  struct RClass *fiber_class;
  shapes shapes;       /* of envs */
};

/* memory.c: opens a state that allocates from the VM; tasks are limited, the driver is not. */
mrb_state *memory_open(fb_vm *vm);
void memory_watch(fb_vm *vm); /* installs the debug hook, if the library has one */
void memory_for_task(fb_vm *vm);
void memory_for_driver(fb_vm *vm);
/* Enough to report why a task has failed, once. */
void memory_for_report(fb_vm *vm);
/* Makes room for so many pieces of `size` bytes together, which are granted until another step begins; raises NoMemoryError. */
void memory_reserve(mrb_state *mrb, size_t pieces, size_t size);
/* Whether the heap has no room for so much even after a collection. */
int memory_is_full(fb_vm *vm, size_t needed);
void memory_discard(fb_vm *vm);

/* tape.c: writes values to a buffer and reads them from a tape. All of these raise on failure. */
void tape_grow(mrb_state *mrb, buffer *to, size_t length);
void tape_value(mrb_state *mrb, buffer *to, mrb_value value, int depth);
mrb_value tape_take(mrb_state *mrb, fb_bytes bytes);

/* Inline, because every response is written with these. */
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

/* fibers.c: what Fibers may do, and the Fibers of tasks. */
void fibers_define(mrb_state *mrb, struct RClass *rt);
/* A new Fiber for tasks. */
mrb_value fibers_new(mrb_state *mrb, fb_vm *vm);
struct mrb_context *fibers_context(mrb_value fiber);
/* Whether it has finished its job: nothing of a handler is left on its stack. */
int fibers_is_idle(const fb_vm *vm, mrb_value fiber);
/* Closures that a Fiber's frames share with others keep their variables when it is dropped. */
void fibers_detach(mrb_state *mrb, mrb_value fiber);
/* `return fibers_wait(...)`: leaves the current Fiber until the server resumes it. */
mrb_value fibers_wait(mrb_state *mrb, mrb_value value);

/* source.c: gives the methods of mruby that compile code the memory for it. */
void source_define(mrb_state *mrb);

/* vm.c: runs `body` protected and restores the arena. An exception is written to `out`. */
int vm_enter(fb_vm *vm, mrb_protect_error_func *body, void *user, mrb_value *result);
mrb_value vm_interned(mrb_state *mrb, fb_vm *vm, uint32_t number);

#endif
