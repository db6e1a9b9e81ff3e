/* The only part of clattn in C++: sentencepiece has no other interface.  No exception leaves this file. */
#include "tool/text/vocabulary.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

extern "C" {
#include "io/os_file.h"
#include "tool/cli/os_tool.h"
#include "tool/run/model_config.h"
#include "tool/text/vocabulary_check.h"
#include "tool/tool.h"
}

#define MOST_BYTES (std::size_t(64) << 20)

struct vocabulary {
    sentencepiece::SentencePieceProcessor processor;
    std::vector<std::string> pieces;
};

namespace
{

using sentencepiece::util::Status;
using sentencepiece::util::StatusCode;

/* The lines of all files that are not empty. */
class file_lines : public sentencepiece::SentenceIterator
{
  public:
    file_lines(const char *const *files, std::size_t count) : files_(files), count_(count)
    {
        Next();
    }

    file_lines(const file_lines &) = delete;
    file_lines &operator=(const file_lines &) = delete;

    ~file_lines() override
    {
        if (file_ != nullptr)
            std::fclose(file_);
    }

    bool done() const override
    {
        return done_;
    }

    void Next() override
    {
        do
            done_ = !read_line();
        while (!done_ && line_.empty());
    }

    const std::string &value() const override
    {
        return line_;
    }

    Status status() const override
    {
        return problem_.empty() ? Status() : Status(StatusCode::kDataLoss, problem_);
    }

    /* What is wrong with a file, or nothing. */
    const std::string &problem() const
    {
        return problem_;
    }

  private:
    bool fail(const char *what)
    {
        problem_ = std::string(files_[next_ - 1]) + ": cannot be " + what + ": " + std::strerror(errno);
        return false;
    }

    /* Opens the next file; false: there is none. */
    bool open_next()
    {
        if (next_ == count_)
            return false;
        file_ = os_open_for_reading(files_[next_++]);
        return file_ != nullptr || fail("opened");
    }

    bool read_line()
    {
        line_.clear();
        if (!problem_.empty() || (file_ == nullptr && !open_next()))
            return false;
        int c = std::getc(file_);
        for (; c != EOF && c != '\n'; c = std::getc(file_))
            line_ += static_cast<char>(c);
        if (!line_.empty() && line_.back() == '\r')
            line_.pop_back();
        if (c != EOF)
            return true;
        const bool failed = std::ferror(file_) != 0 && !fail("read");
        std::fclose(file_);
        file_ = nullptr;
        return !failed;
    }

    const char *const *files_;
    std::size_t count_, next_ = 0;
    std::FILE *file_ = nullptr;
    std::string line_, problem_;
    bool done_ = false;
};

/* What a status says, without the place in the library's source: "FILE(LINE) [CONDITION] TEXT". */
std::string words_of(const Status &status)
{
    const std::string message = status.ToString();
    const std::size_t end = message.rfind("] ");
    return end == std::string::npos ? message : message.substr(end + 2);
}

/* Calls the function, which returns an exit status; what it throws is an error, too. */
template <typename function> int guarded(const char *path, function call)
{
    try {
        return call();
    } catch (const std::bad_alloc &) {
        return complain(TOOL_FAILED, "%s: no memory for the vocabulary", path);
    } catch (const std::exception &problem) {
        return complain(TOOL_FAILED, "%s: %s", path, problem.what());
    }
}

int train(const char *const *files, std::size_t count, std::size_t pieces, const char *path)
{
    /* No table of characters, which the file would carry and sentencepiece would not check: texts are taken as they are.
     * One character in 10,000 at most is no piece.  A minloglevel of 3 prints nothing. */
    const std::unordered_map<std::string, std::string> how = {
        {"model_type", "unigram"},
        {"vocab_size", std::to_string(pieces)},
        {"hard_vocab_limit", "false"},
        {"normalization_rule_name", "identity"},
        {"character_coverage", "0.9999"},
        {"max_sentence_length", std::to_string(MOST_BYTES)},
        {"num_threads", "1"},
        {"pad_id", std::to_string(VOCABULARY_PAD)},
        {"unk_id", std::to_string(VOCABULARY_UNKNOWN)},
        {"bos_id", std::to_string(VOCABULARY_BEGIN)},
        {"eos_id", std::to_string(VOCABULARY_END)},
        {"minloglevel", "3"},
    };
    file_lines lines(files, count);
    if (lines.done() && lines.problem().empty())
        return complain(TOOL_BAD_INPUT, "%s: has no text, expected lines", files[0]);
    std::string contents;
    const Status status =
        lines.problem().empty() ? sentencepiece::SentencePieceTrainer::Train(how, &lines, &contents) : lines.status();
    if (!lines.problem().empty())
        return complain(TOOL_BAD_INPUT, "%s", lines.problem().c_str());
    if (!status.ok())
        return complain(TOOL_BAD_INPUT, "%s: no vocabulary of %zu pieces can be made of it: %s", files[0], pieces,
                        words_of(status).c_str());
    clattn_io_error error;
    const os_part part = {contents.data(), contents.size()};
    const clattn_status written = os_file_replace(path, &part, 1, &error);
    return written == CLATTN_SUCCESS ? TOOL_DONE : complain(TOOL_FAILED, "%s", error.message);
}

/* What is wrong with a vocabulary that has been read; NULL: nothing. */
const char *problem_of(const sentencepiece::SentencePieceProcessor &p)
{
    if (p.GetPieceSize() <= VOCABULARY_SPECIALS || p.GetPieceSize() > VOCABULARY_MOST)
        return "has too few or too many pieces, expected 5 to 65536";
    if (p.pad_id() != VOCABULARY_PAD || p.unk_id() != VOCABULARY_UNKNOWN || p.bos_id() != VOCABULARY_BEGIN ||
        p.eos_id() != VOCABULARY_END)
        return "has other numbers than 0 to 3 for padding, unknown pieces, begin and end";
    for (int i = 0; i < p.GetPieceSize(); i++) /* of a NaN no piece is the best */
        if (!(p.GetScore(i) > -1e30f && p.GetScore(i) < 1e30f))
            return "has a piece whose score is not finite";
    return nullptr;
}

int open(const char *path, vocabulary &v)
{
    clattn_io_error error;
    char *text;
    std::size_t bytes;
    const clattn_status status = model_file_read(path, MOST_BYTES, &text, &bytes, &error);
    if (status != CLATTN_SUCCESS)
        return model_file_fail(status, &error);
    const std::string contents(text, bytes);
    std::free(text);
    if (!vocabulary_has_no_table(contents.data(), bytes) || !v.processor.LoadFromSerializedProto(contents).ok())
        return complain(TOOL_BAD_INPUT, "%s: is not a vocabulary that clattn has made", path);
    const char *problem = problem_of(v.processor);
    if (problem != nullptr)
        return complain(TOOL_BAD_INPUT, "%s: %s", path, problem);
    for (int i = 0; i < v.processor.GetPieceSize(); i++)
        v.pieces.push_back(v.processor.IdToPiece(i));
    return TOOL_DONE;
}

} // namespace

extern "C" {

int vocabulary_train(const char *const *files, size_t count, size_t pieces, const char *path)
{
    return guarded(path, [=] { return train(files, count, pieces, path); });
}

int vocabulary_open(const char *path, vocabulary **result)
{
    *result = nullptr;
    const int status = guarded(path, [=] { return open(path, *(*result = new vocabulary)); });
    if (status != TOOL_DONE) {
        vocabulary_close(*result);
        *result = nullptr;
    }
    return status;
}

void vocabulary_close(vocabulary *v)
{
    delete v;
}

size_t vocabulary_size(const vocabulary *v)
{
    return v->pieces.size();
}

int vocabulary_append(vocabulary_ids *ids, int32_t id)
{
    if (ids->count == ids->capacity) {
        const size_t capacity = 2 * ids->capacity + 64;
        void *larger = std::realloc(ids->id, capacity * sizeof *ids->id);
        if (larger == nullptr)
            return complain(TOOL_FAILED, "no memory for a text's pieces");
        ids->id = static_cast<int32_t *>(larger);
        ids->capacity = capacity;
    }
    ids->id[ids->count++] = id;
    return TOOL_DONE;
}

int vocabulary_encode(const vocabulary *v, const char *text, size_t bytes, vocabulary_ids *ids)
{
    return guarded("a text", [=] {
        std::vector<int> found;
        const Status encoded = v->processor.Encode({text, bytes}, &found);
        int status = encoded.ok() ? TOOL_DONE : complain(TOOL_FAILED, "a text: %s", words_of(encoded).c_str());
        for (size_t i = 0; status == TOOL_DONE && i < found.size(); i++)
            status = vocabulary_append(ids, found[i]);
        return status;
    });
}

int vocabulary_decode(const vocabulary *v, const int32_t *ids, size_t count, char **text)
{
    *text = nullptr;
    return guarded("a text", [=] {
        std::string joined;
        const Status decoded = v->processor.Decode(std::vector<int>(ids, ids + count), &joined);
        if (!decoded.ok())
            return complain(TOOL_FAILED, "a text: %s", words_of(decoded).c_str());
        *text = static_cast<char *>(std::malloc(joined.size() + 1));
        if (*text == nullptr)
            return complain(TOOL_FAILED, "no memory for a text");
        std::memcpy(*text, joined.c_str(), joined.size() + 1);
        return static_cast<int>(TOOL_DONE);
    });
}

const char *vocabulary_piece(const vocabulary *v, int32_t id)
{
    return v->pieces[static_cast<size_t>(id)].c_str();
}
}
