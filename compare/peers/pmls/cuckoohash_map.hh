// The libcuckoo of today as that of 2015 was: at global scope, with an iterator that knows its end.
#pragma once
#include_next <libcuckoo/cuckoohash_map.hh>
#include <memory>

template <class K, class V>
class cuckoohash_map : public libcuckoo::cuckoohash_map<K, V> {
  typedef libcuckoo::cuckoohash_map<K, V> Base;

public:
  using Base::Base;

  class iterator {
  public:
    explicit iterator(Base* map) : table_(new typename Base::locked_table(map->lock_table())), at_(table_->begin()) {}
    bool is_end() const { return at_ == table_->end(); }
    iterator& operator++() { ++at_; return *this; }
    void operator++(int) { ++at_; }
    typename Base::value_type* operator->() const { return &*at_; }

  private:
    std::shared_ptr<typename Base::locked_table> table_;  // locked for as long as one looks
    mutable typename Base::locked_table::iterator at_;
  };

  iterator begin() { return iterator(this); }
  iterator cbegin() { return iterator(this); }
};
