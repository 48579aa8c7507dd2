/* Random bytes, under the name by which Rust's standard library asks Windows for them. */
#include <windows.h>

/* Of advapi32, and older than its documented names. */
BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG len);

__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T len) {
    const SIZE_T most = 1 << 20;
    while (len > 0) {
        ULONG part = (ULONG)(len < most ? len : most);
        if (!SystemFunction036(bytes, part)) {
            return FALSE;
        }
        bytes += part;
        len -= part;
    }
    return TRUE;
}
