// The functions of one stream. What stands in dollar signs is put in by `kernel::calls::forms`.
alias $name$_stream = tombolo_call_stream;

fn $name$_put(s: ptr<function, $name$_stream>, word: u32) { tombolo_call_put(s, word); }

fn $name$_get(s: ptr<function, $name$_stream>) -> u32 { return tombolo_call_get(s); }

fn $name$_close(s: ptr<function, $name$_stream>) -> $name$_reply {
    var reply: $name$_reply;
    if tombolo_call_end(s) {
        reply.status = tombolo_status_done;
        let results = (*s).results;
$results$
        tombolo_call_release(s);
        (*s).status = tombolo_status_no_ticket;
    } else {
        reply.status = select((*s).status, tombolo_status_no_ticket, (*s).status == tombolo_status_unset);
    }
    (*s).given = 0u;
    return reply;
}
