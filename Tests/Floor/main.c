// The floor of `make bench`: two processes that do only what the messages of two nodes cannot do without, with nothing
// around it. 200-byte texts travel in frames sealed with ChaCha20-Poly1305 over TCP on the loopback; each end appends them
// to a log, sealed with XChaCha20-Poly1305, and calls fdatasync once for all that has come; the receiver acknowledges
// what is on its disk. The keys of the session are there before the clock starts.
//
//     floor DIRECTORY MESSAGES     prints one JSON object of figures on standard output
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TEXT = 200,
    TAG = crypto_aead_chacha20poly1305_ietf_ABYTES,
    HEAD = 2 + TAG,
    OVERHEAD = HEAD + TAG,
    WINDOW = 256,
    BULK = 60000,
    RECORD_OVERHEAD = 4 + crypto_aead_xchacha20poly1305_ietf_NPUBBYTES + crypto_aead_xchacha20poly1305_ietf_ABYTES,
    BUFFER = 1 << 18,
    SECONDS_AT_MOST = 120,
};

static unsigned char outward[32], inward[32], log_key[32];
static const char *directory;

static void fail(const char *what) {
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// MARK: Links

struct link {
    int socket;
    const unsigned char *send_key, *receive_key;
    uint64_t sent, received;
    unsigned char *buffer;
    size_t filled;
    // Length of the body that comes next; negative while its head is not here.
    long body;
};

static void make_link(struct link *link, int socket, int is_sender) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *link = (struct link){
        .socket = socket,
        .send_key = is_sender ? outward : inward,
        .receive_key = is_sender ? inward : outward,
        .buffer = malloc(BUFFER),
        .body = -1,
    };
}

static void make_nonce(unsigned char *nonce, uint64_t counter) {
    memset(nonce, 0, 4);
    memcpy(nonce + 4, &counter, 8);
}

static void seal(unsigned char *target, const unsigned char *text, size_t count, const unsigned char *key, uint64_t counter) {
    unsigned char nonce[12];
    make_nonce(nonce, counter);
    crypto_aead_chacha20poly1305_ietf_encrypt(target, NULL, text, count, NULL, 0, NULL, nonce, key);
}

static void open_sealed(unsigned char *target, const unsigned char *sealed, size_t count, const unsigned char *key, uint64_t counter) {
    unsigned char nonce[12];
    make_nonce(nonce, counter);
    if (crypto_aead_chacha20poly1305_ietf_decrypt(target, NULL, NULL, sealed, count, NULL, 0, nonce, key)) {
        errno = EBADMSG;
        fail("a frame is damaged");
    }
}

// A frame is its sealed length and its sealed body.
static size_t seal_frame(struct link *link, unsigned char *target, const void *text, size_t count) {
    unsigned char length[2] = {(unsigned char)(count >> 8), (unsigned char)count};
    seal(target, length, 2, link->send_key, link->sent++);
    seal(target + HEAD, text, count, link->send_key, link->sent++);
    return count + OVERHEAD;
}

static void send_all(struct link *link, const unsigned char *bytes, size_t count) {
    while (count > 0) {
        ssize_t sent = send(link->socket, bytes, count, MSG_NOSIGNAL);
        if (sent < 0) fail("send");
        bytes += sent;
        count -= (size_t)sent;
    }
}

static void receive_some(struct link *link) {
    ssize_t count = recv(link->socket, link->buffer + link->filled, BUFFER - link->filled, 0);
    if (count <= 0) fail("receive");
    link->filled += (size_t)count;
}

// Opens all whole frames that are here, gives each to `take`, and keeps the rest.
static void open_frames(struct link *link, void (*take)(void *, const unsigned char *, size_t), void *context) {
    static unsigned char text[1 << 16];
    size_t start = 0;
    for (;;) {
        if (link->body < 0) {
            unsigned char length[2];
            if (link->filled - start < HEAD) break;
            open_sealed(length, link->buffer + start, HEAD, link->receive_key, link->received++);
            link->body = length[0] << 8 | length[1];
        }
        size_t count = (size_t)link->body;
        if (link->filled - start < count + OVERHEAD) break;
        open_sealed(text, link->buffer + start + HEAD, count + TAG, link->receive_key, link->received++);
        start += count + OVERHEAD;
        link->body = -1;
        take(context, text, count);
    }
    memmove(link->buffer, link->buffer + start, link->filled - start);
    link->filled -= start;
}

// MARK: Log

static int make_log(const char *name) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    int log = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (log < 0) fail(path);
    unlink(path);
    return log;
}

static size_t seal_record(unsigned char *target, const unsigned char *text, size_t count) {
    uint32_t length = (uint32_t)count;
    unsigned char *nonce = target + 4;
    memcpy(target, &length, 4);
    randombytes_buf(nonce, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES);
    crypto_aead_xchacha20poly1305_ietf_encrypt(
        nonce + crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, NULL, text, count, target, 4, NULL, nonce, log_key);
    return count + RECORD_OVERHEAD;
}

static void commit(int log, const unsigned char *records, size_t count) {
    if (write(log, records, count) != (ssize_t)count || fdatasync(log)) fail("commit");
}

// MARK: The receiver

struct receiver {
    uint64_t count, byte_count;
    int is_stored;
    unsigned char *records;
    size_t filled;
};

static void take_message(void *context, const unsigned char *text, size_t count) {
    struct receiver *receiver = context;
    receiver->count++;
    receiver->byte_count += count;
    if (receiver->is_stored) receiver->filled += seal_record(receiver->records + receiver->filled, text, count);
}

// Acknowledges up to which message everything is durable, or here.
static void receive_messages(int listener, uint64_t total, int is_stored) {
    int socket = accept(listener, NULL, NULL);
    if (socket < 0) fail("accept");
    struct link link;
    make_link(&link, socket, 0);
    int log = make_log("receiver");
    struct receiver receiver = {.is_stored = is_stored, .records = malloc(2 * BUFFER)};
    unsigned char frame[8 + OVERHEAD];
    uint64_t acknowledged = 0;
    while (receiver.count < total) {
        receive_some(&link);
        receiver.filled = 0;
        open_frames(&link, take_message, &receiver);
        if (receiver.count == acknowledged) continue;
        acknowledged = receiver.count;
        if (is_stored) commit(log, receiver.records, receiver.filled);
        send_all(&link, frame, seal_frame(&link, frame, &receiver.count, sizeof receiver.count));
    }
}

static void receive_file(int listener, uint64_t byte_count) {
    int socket = accept(listener, NULL, NULL);
    if (socket < 0) fail("accept");
    struct link link;
    make_link(&link, socket, 0);
    struct receiver receiver = {0};
    while (receiver.byte_count < byte_count) {
        receive_some(&link);
        open_frames(&link, take_message, &receiver);
    }
    unsigned char frame[8 + OVERHEAD];
    send_all(&link, frame, seal_frame(&link, frame, &receiver.count, sizeof receiver.count));
}

// MARK: The sender

static void take_acknowledgement(void *context, const unsigned char *text, size_t count) {
    if (count == sizeof(uint64_t)) memcpy(context, text, count);
}

struct figures {
    // Messages in a second.
    double rate;
    // Microseconds of processor time of a message.
    double sender_cpu, receiver_cpu;
};

static struct sockaddr_in address;

static struct link connect_to_receiver(void) {
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (peer < 0 || connect(peer, (struct sockaddr *)&address, sizeof address)) fail("connect");
    struct link link;
    make_link(&link, peer, 1);
    return link;
}

static double wait_for(pid_t process) {
    struct rusage usage;
    int status;
    if (wait4(process, &status, 0, &usage) != process || status != 0) fail("the receiver has failed");
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
        + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

#define RECEIVER(...)                                    \
    pid_t process = fork();                              \
    if (process < 0) fail("fork");                       \
    if (process == 0) {                                  \
        alarm(SECONDS_AT_MOST);                          \
        __VA_ARGS__;                                     \
        _exit(0);                                        \
    }

static struct figures send_messages(int listener, uint64_t total) {
    RECEIVER(receive_messages(listener, total, 1))
    struct link link = connect_to_receiver();
    int log = make_log("sender");
    static unsigned char frames[BUFFER], records[BUFFER], text[TEXT];
    uint64_t sent = 0, acknowledged = 0;
    double start = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    while (acknowledged < total) {
        size_t frame_bytes = 0, record_bytes = 0;
        while (sent < total && sent - acknowledged < WINDOW) {
            record_bytes += seal_record(records + record_bytes, text, TEXT);
            frame_bytes += seal_frame(&link, frames + frame_bytes, text, TEXT);
            sent++;
        }
        if (record_bytes > 0) commit(log, records, record_bytes);
        if (frame_bytes > 0) send_all(&link, frames, frame_bytes);
        receive_some(&link);
        open_frames(&link, take_acknowledgement, &acknowledged);
    }
    struct figures figures = {
        .rate = (double)total / (seconds(CLOCK_MONOTONIC) - start),
        .sender_cpu = (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * 1e6 / (double)total,
    };
    close(link.socket);
    close(log);
    figures.receiver_cpu = wait_for(process) / (double)total;
    return figures;
}

static int compare(const void *one, const void *other) {
    double left = *(const double *)one, right = *(const double *)other;
    return (left > right) - (left < right);
}

// One message after the other, from its beginning to its acknowledgement: the median, in microseconds.
static double latency(int listener, uint64_t count, int is_stored) {
    RECEIVER(receive_messages(listener, count, is_stored))
    struct link link = connect_to_receiver();
    int log = make_log("sender");
    unsigned char frame[TEXT + OVERHEAD], record[TEXT + RECORD_OVERHEAD], text[TEXT] = {0};
    double *times = malloc(count * sizeof *times);
    for (uint64_t index = 0; index < count; index++) {
        uint64_t acknowledged = 0;
        double start = seconds(CLOCK_MONOTONIC);
        if (is_stored) commit(log, record, seal_record(record, text, TEXT));
        send_all(&link, frame, seal_frame(&link, frame, text, TEXT));
        while (acknowledged != index + 1) {
            receive_some(&link);
            open_frames(&link, take_acknowledgement, &acknowledged);
        }
        times[index] = (seconds(CLOCK_MONOTONIC) - start) * 1e6;
    }
    close(link.socket);
    close(log);
    wait_for(process);
    qsort(times, count, sizeof *times, compare);
    double median = times[count / 2];
    free(times);
    return median;
}

// Bytes in frames that are as large as a link has them: MiB in a second.
static double bulk(int listener, uint64_t frame_count) {
    RECEIVER(receive_file(listener, frame_count * BULK))
    struct link link = connect_to_receiver();
    static unsigned char frame[BULK + OVERHEAD], text[BULK];
    double start = seconds(CLOCK_MONOTONIC);
    for (uint64_t index = 0; index < frame_count; index++) {
        send_all(&link, frame, seal_frame(&link, frame, text, BULK));
    }
    uint64_t received = 0;
    while (received < frame_count) {
        receive_some(&link);
        open_frames(&link, take_acknowledgement, &received);
    }
    double time = seconds(CLOCK_MONOTONIC) - start;
    close(link.socket);
    wait_for(process);
    return (double)frame_count * BULK / time / (1 << 20);
}

int main(int count, char **arguments) {
    char *end = NULL;
    unsigned long messages = count == 3 ? strtoul(arguments[2], &end, 10) : 0;
    if (messages < 1000 || messages > 10000000 || *end != 0) {
        fprintf(stderr, "usage: floor DIRECTORY MESSAGES (1000 to 10000000)\n");
        return 64;
    }
    directory = arguments[1];
    if (sodium_init() < 0) fail("libsodium");
    randombytes_buf(outward, sizeof outward);
    randombytes_buf(inward, sizeof inward);
    randombytes_buf(log_key, sizeof log_key);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t length = sizeof address;
    address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1)
        || getsockname(listener, (struct sockaddr *)&address, &length)) {
        fail("listen");
    }
    double in_memory = latency(listener, messages / 10, 0);
    double stored = latency(listener, messages / 20, 1);
    struct figures figures = send_messages(listener, messages);
    double bulk_rate = bulk(listener, messages / 20);
    printf(
        "{\"rate\":%.1f,\"senderCPU\":%.3f,\"receiverCPU\":%.3f,\"stored\":%.1f,\"memory\":%.1f,\"bulk\":%.1f}\n",
        figures.rate, figures.sender_cpu, figures.receiver_cpu, stored, in_memory, bulk_rate);
    return 0;
}
