// Searches the documentation. A worker, because making the index takes a moment. It gets the words of a query, and
// returns the entries of search.json that match best, with the words they were found by.
importScripts("/assets/lunr.min.js");

const MOST = 12;

// The parts of `limits.max_body` are words, too.
lunr.tokenizer.separator = /[\s\-.,:;()/`=]+/;

const ready = fetch("/assets/search.json").then((response) => response.json()).then((entries) => {
  const index = lunr(function () {
    this.ref("number");
    this.field("title", { boost: 8 });
    this.field("page", { boost: 3 });
    this.field("text");
    entries.forEach((entry, number) => this.add({ number, title: entry.title, page: entry.page, text: entry.text }));
  });
  return { entries, index };
});

// Entries with all words come first, then those with some. The last word may be unfinished.
function find(index, words) {
  const query = (all) => index.query((q) => {
    words.forEach((word, place) => {
      const presence = all ? lunr.Query.presence.REQUIRED : lunr.Query.presence.OPTIONAL;
      const wildcard = place === words.length - 1 ? lunr.Query.wildcard.TRAILING : lunr.Query.wildcard.NONE;
      if (wildcard === lunr.Query.wildcard.NONE) {
        q.term(word, { presence });
      } else if (all) {
        q.term(`${word}*`, { presence, usePipeline: false });
        q.term(word, { boost: 4 });
      } else {
        q.term(word, { boost: 4 });
        q.term(`${word}*`, { usePipeline: false });
      }
    });
  });
  const all = query(true);
  return all.length > 0 ? all : query(false);
}

onmessage = async ({ data }) => {
  const { entries, index } = await ready;
  const words = lunr.tokenizer(data.query).map((token) => token.toString()).filter((word) => word.length > 1);
  const hits = words.length > 0 ? find(index, words) : [];
  postMessage({ number: data.number, count: hits.length, hits: hits.slice(0, MOST).map((hit) => entries[hit.ref]).map(({ at, page, title }) => ({ at, page, title })) });
};
