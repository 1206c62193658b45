/* Limits of a VM and a step: memory, counted at each allocation, and time, which is checked there, too.
 *
 * mruby does not survive that just any allocation is refused: while a Fiber is made, a frame with captured variables is left, or a
 * table grows, its structures are inconsistent, and the exception, or the collection before it, reads them. So:
 *
 *  1. Refused are the bytes of Strings and Symbols, and whatever is large: pages of objects, Arrays, Hashes, stacks. All code that
 *     goes on and on needs these.
 *  2. Structures that are small are granted beyond the ceiling of a step, up to an overdraft.
 *  3. Code that needs even more is left by a jump, as a step that computes without end is (stop.c): the VM is discarded.
 *  4. Where a C function needs several pieces (a Fiber), the shim asks for room for all of them first: `memory_reserve`.
 */
#include "stop.h"

#include <stdlib.h>

/* What small structures may add to the heap beyond the ceiling of a step: a part of the heap, within these bounds. */
#define LEAST_OVERDRAFT ((size_t)1 << 20)
#define MOST_OVERDRAFT ((size_t)16 << 20)
#define PART_FOR_OVERDRAFT 16

/* The largest of them: the captured variables of a frame. */
#define SMALL (256 * sizeof(mrb_value))

static size_t size_of(const block *b) { return b ? b->size : 0; }

static void link_block(fb_vm *vm, block *b) {
  b->next = vm->blocks.next;
  b->previous = &vm->blocks;
  b->next->previous = b;
  vm->blocks.next = b;
}

static void unlink_block(block *b) {
  b->next->previous = b->previous;
  b->previous->next = b->next;
}

/* Whether this can be a table of instance variables, constants or methods: names and values for a power of two of them. mruby 3.1
 * notes the new size before it asks for the memory. */
static int is_table(size_t size) {
  const size_t entry = sizeof(void *) + sizeof(mrb_sym);
  size_t entries = size / entry;
  return size % entry == 0 && (entries & (entries - 1)) == 0;
}

/* Whether mruby survives that the memory is refused. */
static int can_refuse(const fb_vm *vm, const void *old, size_t size) {
  if (!vm->mrb) return 1; /* mrb_open is prepared for it */
#ifndef MRB_GC_FIXED_ARENA
  /* Its new size has been noted already. */
  if (old && old == vm->mrb->gc.arena) return 0;
#endif
  /* Only bytes have such sizes. */
  if (size % sizeof(mrb_sym) != 0) return 1;
  return size > SMALL;
}

/* Ends the step, which mruby would not survive. */
static void give_up(fb_vm *vm) {
  if (stop_running != vm) return;
  stop_running = NULL;
  siglongjmp(vm->leave, LEFT_FOR_MEMORY);
}

/* Whether a step may have `size` bytes, which add `more` to the heap. May not return (`give_up`). */
static int is_granted(fb_vm *vm, const void *old, size_t size, size_t more) {
  if (more <= vm->reserved) {
    vm->reserved -= more;
    return 1;
  }
  if (!can_refuse(vm, old, size)) {
    if (more > vm->utmost || vm->heap > vm->utmost - more) give_up(vm);
    return 1;
  }
  int fits = more <= vm->ceiling && vm->heap <= vm->ceiling - more;
  if (size > SMALL && size % sizeof(mrb_sym) == 0) {
    /* A Hash grows in two pieces; the second is not larger, and cannot be refused any more. */
    int is_second = size <= vm->first_piece;
    vm->first_piece = fits ? size : 0;
    if (!fits && (is_second || is_table(size))) fits = more <= vm->utmost && vm->heap <= vm->utmost - more;
    if (is_second) fits = 1;
  }
  if (!fits) return 0;
#ifndef MRB_USE_DEBUG_HOOK
  /* Without the hook this is the only place where code can be interrupted; not the driver. mruby tries again after a
   * collection, so it takes two failures to raise; not more, so that `rescue` clauses have memory. */
  if (vm->ceiling != SIZE_MAX && !vm->is_ending && atomic_load_explicit(&vm->interrupted, memory_order_relaxed) > 0 && !is_table(size)) {
    atomic_fetch_sub_explicit(&vm->interrupted, 1, memory_order_relaxed);
    vm->first_piece = 0;
    return 0;
  }
#endif
  return 1;
}

static void *allocate(fb_vm *vm, void *old, size_t size) {
  block *b = old ? (block *)old - 1 : NULL;
  size_t before = size_of(b);
  if (size == 0) {
    if (!b) return NULL;
    vm->heap -= before;
    unlink_block(b);
    free(b);
    return NULL;
  }
  if (vm->first_allocation == 0) vm->first_allocation = size;
  if (size > SIZE_MAX / 2) return NULL;
  size_t whole = size + sizeof(block);
  if (whole > before && !is_granted(vm, old, size, whole - before)) return NULL;
  if (b) unlink_block(b);
  block *new = realloc(b, whole);
  if (!new) {
    if (b) link_block(vm, b);
    if (!can_refuse(vm, old, size)) give_up(vm);
    return NULL;
  }
  link_block(vm, new);
  new->size = whole;
  vm->heap = vm->heap - before + whole;
  return new + 1;
}

#if MRUBY_RELEASE_NO >= 40000
/* Since 4.0 all VMs of a process share one allocator, which a program may replace. The memory belongs to the VM that this thread
 * entered last. */
static _Thread_local fb_vm *owner;

void *mrb_basic_alloc_func(void *old, size_t size) { return allocate(owner, old, size); }

mrb_state *memory_open(fb_vm *vm) {
  owner = vm;
  return mrb_open();
}

static void set_owner(fb_vm *vm) { owner = vm; }
#else
static void *allocate_for(mrb_state *mrb, void *old, size_t size, void *user) {
  (void)mrb;
  return allocate(user, old, size);
}

mrb_state *memory_open(fb_vm *vm) { return mrb_open_allocf(allocate_for, vm); }

static void set_owner(fb_vm *vm) { (void)vm; }
#endif

static size_t sum(size_t one, size_t other) { return one > SIZE_MAX - other ? SIZE_MAX : one + other; }

static size_t overdraft(const fb_vm *vm) {
  size_t part = vm->config.heap_limit / PART_FOR_OVERDRAFT;
  return part < LEAST_OVERDRAFT ? LEAST_OVERDRAFT : part > MOST_OVERDRAFT ? MOST_OVERDRAFT : part;
}

static void limit(fb_vm *vm, size_t ceiling) {
  vm->ceiling = ceiling;
  vm->utmost = sum(ceiling, overdraft(vm));
  vm->reserved = vm->first_piece = 0;
}

void memory_for_task(fb_vm *vm) {
  size_t room = vm->config.heap_limit > vm->heap ? vm->config.heap_limit - vm->heap : 0;
  limit(vm, vm->heap + (room < vm->config.task_limit ? room : vm->config.task_limit));
  vm->is_ending = 0;
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

/* The driver is not limited: a failure here would break the VM, not the task. */
void memory_for_driver(fb_vm *vm) {
  set_owner(vm);
  limit(vm, SIZE_MAX);
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

void memory_for_report(fb_vm *vm) {
  if (vm->is_ending) return;
  vm->is_ending = 1;
  limit(vm, sum(vm->heap > vm->ceiling ? vm->heap : vm->ceiling, LEAST_OVERDRAFT));
  atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
}

/* Twice: a page of objects is kept by the collection that empties it, and freed by the next. */
static void collect(fb_vm *vm) {
  mrb_full_gc(vm->mrb);
  mrb_full_gc(vm->mrb);
}

void memory_reserve(mrb_state *mrb, size_t pieces, size_t size) {
  fb_vm *vm = mrb->ud;
  size_t whole = size + pieces * sizeof(block);
  if (vm->heap > vm->ceiling || whole > vm->ceiling - vm->heap) {
    collect(vm);
    if (vm->heap > vm->ceiling || whole > vm->ceiling - vm->heap) mrb_exc_raise(mrb, mrb_obj_value(mrb->nomem_err));
  }
  vm->reserved = whole;
}

/* How many jobs are refused in a full heap before the next collection. */
#define REFUSED_BETWEEN_COLLECTIONS 64

int memory_is_full(fb_vm *vm, size_t needed) {
  size_t most = vm->config.heap_limit;
  if (needed <= most && vm->heap <= most - needed) return 0;
  if (vm->refused++ % REFUSED_BETWEEN_COLLECTIONS != 0) return 1;
  collect(vm);
  return needed > most || vm->heap > most - needed;
}

#ifdef MRB_USE_DEBUG_HOOK
/* Called before each instruction. */
static void hook(mrb_state *mrb, const struct mrb_irep *irep, const mrb_code *pc, mrb_value *regs) {
  fb_vm *vm = mrb->ud;
  int interrupted = atomic_load_explicit(&vm->interrupted, memory_order_relaxed);
  (void)regs;
  if (!interrupted || vm->ceiling == SIZE_MAX || vm->is_ending) return;
  /* The code around all tasks must get the exception; raised here, it would leave the fiber of the task. */
  if (vm->work && irep == vm->work->body.irep) return;
  if (interrupted != UNTIL_IT_ENDS || atomic_load(&vm->unwanted) != atomic_load(&vm->serial)) {
    atomic_store_explicit(&vm->interrupted, 0, memory_order_relaxed);
  }
  /* mruby notes the place in a frame when it calls something. A stale place could lie in the `begin` of a clause that runs already. */
  mrb->c->ci->pc = pc + 1;
  mrb_raise(mrb, vm->interrupted_class, "the handler ran for too long without waiting");
}

void memory_watch(fb_vm *vm) { vm->mrb->code_fetch_hook = hook; }
#else
void memory_watch(fb_vm *vm) { (void)vm; }
#endif

void memory_discard(fb_vm *vm) {
  for (block *b = vm->blocks.next; b != &vm->blocks;) {
    block *next = b->next;
    free(b);
    b = next;
  }
}

void fb_limit(fb_vm *vm, size_t task_limit) { vm->config.task_limit = task_limit; }

size_t fb_heap(fb_vm *vm) { return vm->heap; }

void fb_collect(fb_vm *vm) {
  memory_for_driver(vm);
  collect(vm);
}

void fb_interrupt(fb_vm *vm) {
  if (atomic_load_explicit(&vm->interrupted, memory_order_relaxed) == UNTIL_IT_ENDS) return;
  atomic_store_explicit(&vm->interrupted, 2, memory_order_relaxed);
}
