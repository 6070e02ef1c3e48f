// Package keyring keeps the data keys with which a store seals its entries, in a file outside of
// the store. Destroying a key erases everything that it sealed, in every copy of the store.
//
// A data key is wrapped under a key-encryption key (KEK), which comes from a file or from a
// program. One process has a ring open, or several processes of one machine share it. The lock
// is a file beside the ring, with ".lock" at the end of its name. Each key has a number, its
// slot, and no two keys have the same number.
//
// # Invariants
//
//	outside    a ring does not lie within the store's directory        [Open]         TestRingLiesOutsideOfTheStore
//	once       a key is given to one trace, or to one subject           [Ring.Key]     TestKeyIsGivenOnce
//	numbers    an older copy gives no number that the store has used    [Ring.Reserve] TestOlderRingGivesNoNumberTwice
//	durable    a key is on disk before anything is sealed under it      [Ring.Key]     TestKeyIsDurableBeforeItIsGiven
//	shared     what one process makes or destroys is so for all         [Ring.Key]     TestSharedRingGivesNoNumberTwice,
//	                                                                                   TestSharedRingKnowsWhatOthersChanged
//	gone       a destroyed key stays destroyed, over every open         [Ring.Destroy] TestDestroyedKeyStaysDestroyed
//	unknown    a key that is not at hand is never taken for destroyed   [Ring.Open]    TestDamagedSlotIsNotDestroyed
//	bytes      an open of any bytes ends with an error or a ring        [Open]         FuzzKeyring
package keyring
