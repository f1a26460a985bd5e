# From a boot loader (Multiboot 1: 32 bits, no paging) to 64 bits with AVX-512 switched on.

.set kMagic, 0x1BADB002
.set kFlags, 0x00010000        # the addresses below count
.section .text.boot, "ax"
.code32
.balign 4
header:
  .long kMagic, kFlags, -(kMagic + kFlags)
  .long header, header, load_end, bss_end, start

.globl start
start:
  movl $stack_end, %esp
  # One page directory maps the first GB to itself, in pages of 2 MB.
  movl $directories + 3, tables
  movl $directory + 3, directories
  xorl %ecx, %ecx
1:movl %ecx, %eax
  shll $21, %eax
  orl $0x83, %eax
  movl %eax, directory(,%ecx,8)
  incl %ecx
  cmpl $512, %ecx
  jne 1b
  movl $tables, %eax
  movl %eax, %cr3
  movl $0x40620, %eax          # PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
  movl %eax, %cr4
  movl $0xC0000080, %ecx       # EFER: long mode
  rdmsr
  orl $0x100, %eax
  wrmsr
  movl %cr0, %eax
  andl $~0x4, %eax             # no emulation of the FPU
  orl $0x80000002, %eax        # paging, MP
  movl %eax, %cr0
  lgdt gdt_pointer
  ljmp $8, $start64

.code64
start64:
  movw $16, %ax
  movw %ax, %ds
  movw %ax, %es
  movw %ax, %ss
  xorl %ecx, %ecx
  xorl %edx, %edx
  movl $0xE7, %eax             # x87, SSE, AVX, and the three parts of AVX-512
  xsetbv
  call Main
1:hlt
  jmp 1b

.section .data
.balign 8
gdt: .quad 0, 0x00209A0000000000, 0x0000920000000000
gdt_pointer: .word . - gdt - 1
  .long gdt

.section .bss
.balign 4096
tables: .skip 4096
directories: .skip 4096
directory: .skip 4096
.skip 1 << 20
stack_end:

.section .note.GNU-stack, "", @progbits
